package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
)

// tellBinding logs what may be meant and may be a slip, once for each Run:
// providers of routes that this worker has not bound, and senders that keep a
// message from a provider of its route.
func (w *Worker) tellBinding(ctx context.Context) {
	for _, r := range w.box.list {
		for _, name := range r.Providers {
			if !slices.ContainsFunc(w.cfg.Providers, func(p dispatch.Provider) bool { return p.Contract().Name == name }) {
				w.log.InfoContext(ctx, "provider is not bound: this worker sends nothing to it", slog.String("route", r.Name), slog.String("provider", name))
			}
		}
		for _, sender := range slices.Sorted(maps.Keys(r.Senders)) {
			for _, name := range r.Providers {
				if r.Senders[sender][name] == "" {
					w.log.WarnContext(ctx, "sender is not registered at a provider of its route: its messages never go there",
						slog.String("route", r.Name), slog.String("provider", name), slog.String("sender", sender))
				}
			}
		}
	}
}

// checkBinding says which names there are where a provider's is none of them.
func (b *Box) checkBinding(providers []dispatch.Provider) error {
	var on []string
	names := map[string]bool{}
	for _, r := range b.list {
		on = append(on, r.Name+": "+strings.Join(r.Providers, ", "))
		for _, name := range r.Providers {
			names[name] = true
		}
	}
	for _, p := range providers {
		if p == nil {
			continue // the engine says so
		}
		if c := p.Contract(); c.Validate() == nil && !names[c.Name] {
			return fmt.Errorf("provider %q is on no route (%s)", c.Name, strings.Join(on, "; "))
		}
	}
	return nil
}
