// Stubprovider is a messaging vendor to try things on: it takes messages,
// loses answers on purpose, and tells what became of each call and how many
// went out.
//
//	go run ./examples/stubprovider -addr 127.0.0.1:8025 -dedupe 24h -lose 3
//	curl http://127.0.0.1:8025/deliveries/KEY
//
// The ledger is by key. With -dedupe 0 the adapter's Window is 0 too, and
// provider/httpapi sends a key then only where its SendKey is set.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8025", "listen on this address")
	dedupe := flag.Duration("dedupe", 24*time.Hour, "remember an Idempotency-Key this long; 0 doesn't dedupe (httpapi then sends a key only with SendKey)")
	lag := flag.Duration("lag", 0, "hide an accepted message from look-ups this long")
	lose := flag.Int("lose", 0, "lose the answer of every nth call after taking the message; 0 loses none")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *addr, *dedupe, *lag, *lose); err != nil {
		fmt.Fprintln(os.Stderr, "stubprovider:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, addr string, dedupe, lag time.Duration, lose int) error {
	if lose < 0 {
		return fmt.Errorf("-lose is %d, want 0 or more", lose)
	}
	taken := map[string]time.Time{} // by key; the vendor asks for one call at a time
	vendor, err := providertest.NewVendor(providertest.Options{
		Addr: addr, Dedupe: dedupe, Lag: lag,
		Fault: func(c providertest.Call) (f providertest.Fault) {
			key, what := "key "+c.Key, "delivered"
			if c.Key == "" {
				key = "no key"
			}
			switch at, ok := taken[c.Key]; {
			case c.Method != http.MethodPost:
				what = "refused, no POST"
			case ok && c.Key != "" && time.Since(at) < dedupe:
				what = "known, not delivered again"
			default:
				taken[c.Key] = time.Now()
			}
			if lose > 0 && c.Total%lose == 0 {
				f.Wire = providertest.Drop
				what += ", answer lost"
			}
			_, _ = fmt.Fprintf(out, "call %d: %s, %s\n", c.Total, key, what)
			return f
		},
	})
	if err != nil {
		return err
	}
	defer vendor.Close()

	if _, err := fmt.Fprintf(out, "listening on %[1]s\nsend:   POST %[1]s/v1/messages\nledger: GET  %[1]s/deliveries/{key}\n", vendor.URL); err != nil {
		return err
	}
	<-ctx.Done()
	keys := slices.DeleteFunc(vendor.Keys(), func(key string) bool { return key == "" })
	_, err = fmt.Fprintf(out, "%d keys, %d calls\n", len(keys), len(vendor.AllCalls()))
	return err
}
