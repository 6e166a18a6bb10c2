package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// network is a Toxiproxy in this process, with a proxy in front of everything
// that workers and enqueuers speak to.
type network struct {
	server *toxiproxy.ApiServer

	mu    sync.Mutex
	lines map[string]*line
}

// line is the way to one server. Its address stays; its proxy is a new one after
// each fault: taking a toxic off live connections may block a Toxiproxy for
// ever, where a connection that the toxic has closed isn't read any more.
type line struct {
	strike sync.Mutex // one fault at a time

	name, listen, upstream string
	proxy                  *toxiproxy.Proxy
}

func newNetwork() *network {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics log past the server's own logger
	return &network{
		server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		lines:  map[string]*line{},
	}
}

// add puts a proxy in front of an address and returns the proxy's own.
func (n *network) add(ctx context.Context, name, upstream string) (string, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return "", err
	}
	l := &line{name: name, listen: address, upstream: upstream}
	if err := n.mend(l); err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines[name] = l
	return l.listen, nil
}

func (n *network) line(name string) *line {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lines[name]
}

// mend gives the line a new proxy at its address. The old one's connections
// end.
func (n *network) mend(l *line) error {
	if l.proxy != nil {
		l.proxy.Stop()
	}
	l.proxy = toxiproxy.NewProxy(n.server, l.name, l.listen, l.upstream)
	return l.proxy.Start()
}

// freeAddress is one that nobody listens on, below those that outgoing
// connections get: one of these could take it while nobody does.
func freeAddress(ctx context.Context) (string, error) {
	for port := 12000 + os.Getpid()%7000; port < 20000; port++ {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if given[address] {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			continue
		}
		given[address] = true
		return address, l.Close()
	}
	return "", errors.New("no free port")
}

// given are the addresses that freeAddress returned.
var given = map[string]bool{}

// toxic is what Toxiproxy does to the connections of a line.
type toxic struct {
	Type       string         `json:"type"`
	Stream     string         `json:"stream"`
	Toxicity   float64        `json:"toxicity"`
	Attributes map[string]any `json:"attributes"`
}

// poison puts a toxic on a line while during runs, or none at all: then it
// refuses every connection.
func (n *network) poison(name string, t *toxic, during func()) error {
	l := n.line(name)
	l.strike.Lock()
	defer l.strike.Unlock()
	if t == nil {
		l.proxy.Stop()
	} else {
		text, err := json.Marshal(t)
		if err != nil {
			return err
		}
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
			return fmt.Errorf("%s at %s: %w", t.Type, name, err)
		}
	}
	during()
	return n.mend(l)
}

func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines {
		l.proxy.Stop()
	}
}
