package dispatch_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/vendors"
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

// ownVendors are the adapters of this module, by folder.
func ownVendors(t *testing.T) (list []vendors.Vendor) {
	t.Helper()
	add := func(name, sends string, make func(all bool) (dispatch.Provider, error)) {
		contract := func(all bool) dispatch.Contract {
			p, err := make(all)
			require.NoError(t, err, name)
			if c, ok := p.(interface{ Close() }); ok {
				defer c.Close()
			}
			return p.Contract()
		}
		list = append(list, vendors.Vendor{Name: name, Sends: sends, Bare: contract(false), Full: contract(true)})
	}
	when := func(all bool, v string) string {
		if all {
			return v
		}
		return ""
	}
	secret, hook := strings.Repeat("s", 32), "https://shop.example/hooks"
	add("httpapi", "both", func(all bool) (dispatch.Provider, error) {
		c := httpapi.Config{Name: "api", BaseURL: "https://api.example"}
		if all {
			c.Window, c.LookupPath, c.Lag = 24*time.Hour, "/v1/messages?reference={key}", time.Minute
		}
		return httpapi.New(c)
	})
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
	return list
}

// What the README and docs/vendors.md say of the vendors is what the adapters'
// contracts say. After a change of one with a go.mod of its own, first
// UPDATE_GOLDEN=1 go -C provider/ses test -run TestVendorTable . and then, as
// after any change, go test -run TestVendorTables -update .
func TestVendorTables(t *testing.T) {
	table, sources, own := vendors.Header, "", map[string]bool{}
	for _, v := range ownVendors(t) {
		table, sources, own[v.Name] = table+v.Row(), sources+v.Sources(), true
	}
	folders, err := filepath.Glob("provider/*")
	require.NoError(t, err)
	for _, folder := range folders {
		name := filepath.Base(folder)
		if name == "exchange" || name == "providertest" || name == "internal" || own[name] {
			continue
		}
		written, err := os.ReadFile(filepath.Join(folder, "testdata", "vendor.md")) // its own test compares it with its contract
		require.NoError(t, err, "a vendor without a row in the table")
		row, section, _ := strings.Cut(string(written), "\n")
		table, sources = table+row+"\n", sources+section
	}
	generated(t, "README.md", table)
	generated(t, "docs/vendors.md", table+sources)
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
