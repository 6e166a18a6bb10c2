package dispatch_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
	"github.com/seed-8098fbb7/dispatch/provider/infobip"
	"github.com/seed-8098fbb7/dispatch/provider/infrai"
	"github.com/seed-8098fbb7/dispatch/provider/mailgun"
	"github.com/seed-8098fbb7/dispatch/provider/postmark"
	"github.com/seed-8098fbb7/dispatch/provider/resend"
	"github.com/seed-8098fbb7/dispatch/provider/sendgrid"
	"github.com/seed-8098fbb7/dispatch/provider/sinch"
	"github.com/seed-8098fbb7/dispatch/provider/twilio"
	"github.com/seed-8098fbb7/dispatch/provider/vonage"
)

var update = flag.Bool("update", false, "write the vendor tables into README.md and docs/vendors.md")

// vendors are the adapters of this module, by folder. Those with a go.mod of
// their own are tested there.
func vendors(t *testing.T) (names []string, bare, full map[string]dispatch.Contract, channel map[string]string) {
	t.Helper()
	bare, full, channel = map[string]dispatch.Contract{}, map[string]dispatch.Contract{}, map[string]string{}
	add := func(name, ch string, make func(all bool) (dispatch.Provider, error)) {
		for _, all := range []bool{false, true} {
			p, err := make(all)
			require.NoError(t, err, name)
			if all {
				full[name] = p.Contract()
			} else {
				bare[name] = p.Contract()
			}
			if c, ok := p.(interface{ Close() }); ok {
				c.Close()
			}
		}
		names, channel[name] = append(names, name), ch
	}
	when := func(all bool, v string) string {
		if all {
			return v
		}
		return ""
	}
	secret, hook := strings.Repeat("s", 32), "https://shop.example/hooks"
	add("twilio", "SMS", func(all bool) (dispatch.Provider, error) {
		return twilio.New(twilio.Config{AccountSID: "AC" + strings.Repeat("0", 32), AuthToken: secret, From: "+15555550100", StatusCallback: when(all, hook)})
	})
	add("vonage", "SMS", func(all bool) (dispatch.Provider, error) {
		c := vonage.Config{APIKey: "abcd1234", APISecret: secret, From: "Shop"}
		if all {
			c.SignatureSecret, c.CallbackURL, c.ReportLag = secret, hook, time.Hour
		}
		return vonage.New(c)
	})
	add("sinch", "SMS", func(all bool) (dispatch.Provider, error) {
		return sinch.New(sinch.Config{ServicePlanID: "plan", APIToken: secret, Region: "eu", From: "Shop", CallbackURL: when(all, hook), WebhookSecret: when(all, secret)})
	})
	add("infobip", "SMS", func(all bool) (dispatch.Provider, error) {
		c := infobip.Config{Account: "shop", BaseURL: "https://xyz.api.infobip.com", APIKey: secret, From: "Shop", CallbackURL: when(all, hook), WebhookSecret: when(all, secret)}
		if all {
			c.Idempotency = 6 * time.Hour
		}
		return infobip.New(c)
	})
	add("resend", "email", func(all bool) (dispatch.Provider, error) {
		return resend.New(resend.Config{APIKey: secret, WebhookSecret: when(all, "whsec_"+base64.StdEncoding.EncodeToString([]byte(secret)))})
	})
	add("postmark", "email", func(all bool) (dispatch.Provider, error) {
		return postmark.New(postmark.Config{ServerToken: secret, HookHeader: when(all, "X-Hook"), HookSecret: when(all, secret)})
	})
	add("sendgrid", "email", func(all bool) (dispatch.Provider, error) {
		c := sendgrid.Config{APIKey: secret}
		if all {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			require.NoError(t, err)
			der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
			require.NoError(t, err)
			c.WebhookKey, c.ActivityLag = base64.StdEncoding.EncodeToString(der), time.Hour
		}
		return sendgrid.New(c)
	})
	add("mailgun", "email", func(all bool) (dispatch.Provider, error) {
		return mailgun.New(mailgun.Config{APIKey: secret, Domain: "mg.shop.example", WebhookKey: when(all, secret)})
	})
	add("infrai", "email", func(all bool) (dispatch.Provider, error) {
		c := infrai.Config{APIKey: secret}
		if all {
			c.Window = 24 * time.Hour
		}
		return infrai.New(c)
	})
	add("httpapi", "both", func(all bool) (dispatch.Provider, error) {
		c := httpapi.Config{Name: "api", BaseURL: "https://api.example"}
		if all {
			c.Window, c.LookupPath, c.Lag = 24*time.Hour, "/v1/messages?reference={key}", time.Minute
		}
		return httpapi.New(c)
	})
	return names, bare, full, channel
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
	return fmt.Sprintf("%v", d)
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

// What the README and docs/vendors.md say of the vendors is what the adapters'
// contracts say. After a change: go test -run TestVendorTables -update .
func TestVendorTables(t *testing.T) {
	names, bare, full, channel := vendors(t)
	folders, err := filepath.Glob("provider/*")
	require.NoError(t, err)
	for _, folder := range folders {
		name := filepath.Base(folder)
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil || name == "exchange" || name == "providertest" || name == "internal" {
			continue
		}
		require.Contains(t, names, name, "a vendor without a row in the table")
	}

	var table, sources strings.Builder
	table.WriteString("| adapter | sends | same key again | look-up | receipts with our key | a lost answer is settled |\n|---|---|---|---|---|---|\n")
	for _, name := range names {
		b, f := bare[name], full[name]
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s | %s |\n", name, channel[name],
			offered(b.Dedupe.Window > 0, f.Dedupe.Window > 0, "no second message for "+span(f.Dedupe.Window)),
			offered(b.Search.Available, f.Search.Available, "absence counts after "+span(f.Search.Lag)),
			offered(b.Echo.Reference, f.Echo.Reference, "yes"), settles(f))
		fmt.Fprintf(&sources, "\n## %s\n\n", name)
		for _, s := range []struct{ what, source string }{{"Same key again", f.Dedupe.Source}, {"While in flight", f.Dedupe.InFlight}, {"Look-up", f.Search.Source}, {"Receipts", f.Echo.Source}} {
			if s.source != "" {
				fmt.Fprintf(&sources, "- %s: %s\n", s.what, s.source)
			}
		}
		if f.Dedupe.Window > 0 && !f.Dedupe.Confirmed {
			sources.WriteString("- The window is what the configuration says; the vendor's documents don't confirm it.\n")
		}
	}
	generated(t, "README.md", table.String())
	generated(t, "docs/vendors.md", table.String()+sources.String())
}

// generated compares, or with -update replaces, what stands between the marks.
func generated(t *testing.T, path, want string) {
	t.Helper()
	const begin, end = "<!-- vendors: generated by TestVendorTables -->\n", "<!-- end of vendors -->"
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(file), begin)
	require.True(t, found, path)
	got, after, found := strings.Cut(rest, end)
	require.True(t, found, path)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+"\n"+want+"\n"+end+after), 0o644))
		return
	}
	require.Equal(t, "\n"+want+"\n", got, "%s: run go test -run TestVendorTables -update .", path)
}
