package console

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"github.com/seed-8098fbb7/dispatch/outbox"
)

// holdable is a provider or a route, which may be paused.
type holdable struct {
	Kind, Name string
	Note       string // its routes, or its providers
	Gates      []gateRow
	Paused     bool
	Health     []outbox.ProviderHealth
}

// holds is the page of the providers.
type holds struct {
	Providers, Routes []holdable
	Done              string
}

func (c *Console) providers(ctx context.Context, r *request) error {
	stats, err := c.box.Stats(ctx)
	if err != nil {
		return err
	}
	page := holds{Done: map[string]string{"pause": "Paused.", "resume": "Resumed."}[r.URL.Query().Get("done")]}
	for _, name := range c.names(stats) {
		p := holdable{Kind: "provider", Name: name}
		for _, route := range c.box.Routes() {
			if slices.Contains(route.Providers, name) {
				p.Note = join(p.Note, route.Name)
			}
		}
		for _, h := range stats.Providers {
			if h.Provider == name {
				p.Health = append(p.Health, h)
			}
		}
		page.Providers = append(page.Providers, p.with(stats, func(g outbox.Gate) bool { return g.Provider == name }))
	}
	for _, name := range c.routeNames(stats) {
		p := holdable{Kind: "route", Name: name}
		for _, route := range c.box.Routes() {
			if route.Name == name {
				for _, provider := range route.Providers {
					p.Note = join(p.Note, provider)
				}
			}
		}
		page.Routes = append(page.Routes, p.with(stats, func(g outbox.Gate) bool { return g.Route == name }))
	}
	c.render(ctx, r, http.StatusOK, "providers", view{Title: "Providers and routes", Nav: "providers", Data: page})
	return nil
}

func join(list, name string) string {
	if list == "" {
		return name
	}
	return list + ", " + name
}

// with adds the gates that are closed.
func (p holdable) with(s outbox.Stats, mine func(outbox.Gate) bool) holdable {
	for _, g := range s.Gates {
		if g.Closed && mine(g) {
			p.Gates = append(p.Gates, gateWords(g, s.At))
			p.Paused = p.Paused || g.Reason == "paused"
		}
	}
	return p
}

// routeNames are the box's routes, and others that were paused while they were.
func (c *Console) routeNames(s outbox.Stats) (names []string) {
	for _, r := range c.box.Routes() {
		names = append(names, r.Name)
	}
	for _, g := range s.Gates {
		if g.Route != "" && g.Closed && !slices.Contains(names, g.Route) {
			names = append(names, g.Route)
		}
	}
	return names
}

// hold pauses or resumes a provider or a route.
func (c *Console) hold(ctx context.Context, r *request) error {
	a, err := r.audit()
	if err != nil {
		return err
	}
	stats, err := c.box.Stats(ctx)
	if err != nil {
		return err
	}
	kind, name, do := r.PostFormValue("kind"), r.PostFormValue("name"), r.PostFormValue("do")
	known := kind == "provider" && slices.Contains(c.names(stats), name) || kind == "route" && slices.Contains(c.routeNames(stats), name)
	verbs := map[string]func(context.Context, string, outbox.Audit) error{
		"provider pause": c.box.Pause, "provider resume": c.box.Resume, "route pause": c.box.PauseRoute, "route resume": c.box.ResumeRoute,
	}
	verb, ok := verbs[kind+" "+do]
	if !known || !ok {
		return failure{http.StatusBadRequest, "There is no such provider or route here. Nothing was done."}
	}
	if err := verb(ctx, name, a); err != nil {
		return refused(err)
	}
	c.log.InfoContext(ctx, "console: action", slog.String("verb", do), slog.String(kind, name), slog.String("by", a.By))
	r.redirect("providers?done=" + do)
	return nil
}
