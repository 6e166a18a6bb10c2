package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// standing is what says where a message in motion may go next.
type standing struct {
	country int
	pinned  string
	senders *string // the frozen map
	ledger  *string
	row     decide.Row
}

// readHolds finds the closed gates that keep a message waiting. What a worker
// has bound, and what its contracts permit, isn't known here.
func (b *Box) readHolds(ctx context.Context, tx pgx.Tx, h *History, p standing) error {
	if p.row.Ended != decide.NotEnded {
		return nil // no send of it begins any more
	}
	rows, err := tx.Query(ctx, b.sql.gates)
	if err != nil {
		return err
	}
	list, err := pgx.CollectRows(rows, scanGate)
	if err != nil {
		return err
	}
	names, known := b.candidates(h, p)
	h.hold(publicGates(list), names, known, p.country)
	return nil
}

// candidates are the providers that may take the message's next send; known is
// false where they can't be known, since its route is another application's.
func (b *Box) candidates(h *History, p standing) (names []string, known bool) {
	switch {
	case h.State == dispatch.InDoubt:
		return []string{p.row.Provider}, true
	case p.pinned != "":
		return []string{p.pinned}, true
	}
	var senders map[string]string
	if p.senders != nil && json.Unmarshal([]byte(*p.senders), &senders) != nil {
		return nil, false
	}
	r, ok := b.routes[h.Route]
	if !ok {
		return slices.Sorted(maps.Keys(senders)), senders != nil
	}
	for _, name := range r.Providers {
		if senders == nil || senders[name] != "" {
			names = append(names, name)
		}
	}
	if !readLedger(p.ledger, &p.row.Ledger) {
		return nil, false
	}
	return decide.Setup{Candidates: names}.Free(p.row), true
}

// hold keeps those of the gates that the message waits for.
func (h *History) hold(gates []Gate, names []string, known bool, country int) {
	slices.SortFunc(gates, func(x, y Gate) int {
		return cmp.Or(cmp.Compare(x.Provider, y.Provider), cmp.Compare(x.Country, y.Country))
	})
	closed := map[string][]Gate{}
	for _, g := range gates {
		switch {
		case !g.Closed, !g.Until.IsZero() && !g.Until.After(h.Next): // open when the step is due
		case g.Route != "" && g.Route == h.Route:
			h.Holds = append(h.Holds, g)
		case g.Route == "" && (g.Country == 0 || g.Country == country):
			closed[g.Provider] = append(closed[g.Provider], g)
		}
	}
	if !known {
		if len(h.Holds) > 0 {
			return // that it waits is sure
		}
		names, h.unsure = slices.Sorted(maps.Keys(closed)), true
	}
	var all []Gate
	whole, ill := true, false
	for _, name := range names {
		mine := closed[name]
		if len(mine) == 0 {
			return // it may go there
		}
		all = append(all, mine...)
		whole = whole && mine[0].Country == 0
		ill = ill || mine[0].Country == 0 && mine[0].Reason == "health"
	}
	if whole && ill && known && h.State == dispatch.Pending {
		return // where all are held, health holds nobody
	}
	h.Holds = append(h.Holds, all...)
}

// waits tells what holds the next step, "" for nothing.
func (h History) waits() string {
	if len(h.Holds) == 0 {
		return ""
	}
	list := make([]string, len(h.Holds))
	for i, g := range h.Holds {
		list[i] = g.told()
	}
	words := strings.Join(list, "; ")
	switch {
	case h.State == dispatch.InDoubt:
		return "A repeat under its key would wait: " + words + "; a look-up would not."
	case h.unsure:
		return "It may wait: " + words + "."
	}
	return "It waits: " + words + "."
}

// told tells a closed gate in words.
func (g Gate) told() string {
	words := g.Provider
	if g.Route != "" {
		words = "route " + g.Route
	}
	words += " is held"
	if g.Country != 0 {
		words += fmt.Sprintf(" for +%d", g.Country)
	}
	words += " (" + g.Reason + ")"
	if !g.Until.IsZero() {
		words += " until " + clock(g.Until)
	}
	if g.By != "" {
		words += " by " + g.By
	}
	if g.Why != "" {
		words += ": " + g.Why
	}
	return words
}
