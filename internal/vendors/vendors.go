// Package vendors writes what README.md and docs/vendors.md say of an adapter,
// from its contracts. An adapter with a go.mod of its own keeps it in
// testdata/vendor.md, where its own test compares it.
package vendors

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Vendor is an adapter, with its contract where as little as possible is
// configured, and where everything is.
type Vendor struct {
	Name, Sends string
	Bare, Full  dispatch.Contract
}

// Header begins the table of Rows.
const Header = "| adapter | sends | same key again | look-up | receipts with our key | a lost answer is settled |\n|---|---|---|---|---|---|\n"

// Row is the vendor's line in the table.
func (v Vendor) Row() string {
	b, f := v.Bare, v.Full
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s |\n", v.Name, v.Sends,
		offered(b.Dedupe.Window > 0, f.Dedupe.Window > 0, "no second message for "+span(f.Dedupe.Window)),
		offered(b.Search.Available, f.Search.Available, "absence counts after "+span(f.Search.Lag)),
		offered(b.Echo.Reference, f.Echo.Reference, "yes"), settles(f))
}

// Sources is the section about what each statement rests on.
func (v Vendor) Sources() string {
	var s strings.Builder
	fmt.Fprintf(&s, "\n## %s\n\n", v.Name)
	f := v.Full
	for _, line := range []struct{ what, source string }{
		{"Same key again", f.Dedupe.Source}, {"While in flight", f.Dedupe.InFlight}, {"Look-up", f.Search.Source}, {"Receipts", f.Echo.Source},
	} {
		if line.source != "" {
			fmt.Fprintf(&s, "- %s: %s\n", line.what, line.source)
		}
	}
	if f.Dedupe.Window > 0 && !f.Dedupe.Confirmed {
		s.WriteString("- The window is what the configuration says; the vendor's documents don't confirm it.\n")
	}
	return s.String()
}

// offered says of an ability whether it is there, or there where it is
// configured, and then for as long as the configuration says.
func offered(bare, full bool, what string) string {
	switch {
	case bare:
		return what
	case full:
		return "where configured"
	}
	return "no"
}

// span is a time in words, without zeros.
func span(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return d.String()
}

func settles(c dispatch.Contract) string {
	var by []string
	if c.Dedupe.Window > 0 {
		by = append(by, "by its key")
	}
	if c.Search.Available {
		by = append(by, "by look-up")
	}
	if c.Echo.Reference {
		by = append(by, "by receipt")
	}
	if len(by) == 0 {
		return "by a person"
	}
	return strings.Join(by, ", ")
}
