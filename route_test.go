package dispatch_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

func route() dispatch.Route {
	return dispatch.Route{
		Name: "sms", Providers: []string{"twilio", "vonage"}, Policy: dispatch.SMSPolicy(),
		Senders: dispatch.Senders{"otp": {"twilio": "+15555550100", "vonage": "Shop"}, "news": {"vonage": "ShopNews"}},
	}
}

func TestRouteValidate(t *testing.T) {
	require.NoError(t, route().Validate())
	require.NoError(t, dispatch.Route{Name: "a", Providers: []string{"b"}}.Validate(), "policy and senders have defaults")
	for _, sender := range []string{"MG00000000000000000000000000000001", "Käse & Co", "12345", "+15555550100", "no-reply@shop.example", "Shop <no-reply@shop.example>"} {
		r := route()
		r.Senders["otp"]["vonage"] = sender
		require.NoError(t, r.Validate(), sender)
	}
	for name, c := range map[string]struct {
		bend func(*dispatch.Route)
		want string
	}{
		"no name":          {func(r *dispatch.Route) { r.Name = "" }, `route "": name is empty`},
		"name":             {func(r *dispatch.Route) { r.Name = "a\nb" }, `route "a?b": name has a character`},
		"no provider":      {func(r *dispatch.Route) { r.Providers = nil }, `route "sms": needs at least one provider`},
		"provider":         {func(r *dispatch.Route) { r.Providers = []string{"Twilio"} }, `provider "Twilio": name has`},
		"provider twice":   {func(r *dispatch.Route) { r.Providers = []string{"a", "b", "a"} }, `provider "a" stands twice`},
		"unknown provider": {func(r *dispatch.Route) { r.Providers = []string{"twilio"} }, `sender "news" names provider "vonage", which is not on the route`},
		"empty sender":     {func(r *dispatch.Route) { r.Senders["otp"]["vonage"] = "" }, `sender "otp" at "vonage" is empty`},
		"nameless sender":  {func(r *dispatch.Route) { r.Senders[""] = map[string]string{"vonage": "x"} }, `sender "" at "vonage" is empty`},
		"sender, B034":     {func(r *dispatch.Route) { r.Senders["otp"]["vonage"] = "Shop\r\nX: y" }, `sender "otp" at "vonage" has a line break`},
		"long sender":      {func(r *dispatch.Route) { r.Senders["otp"]["vonage"] = strings.Repeat("a", 321) }, "321 bytes"},
		"sender, no mail":  {func(r *dispatch.Route) { r.Senders["otp"]["vonage"] = "Shop <zebra@>" }, `sender "otp" at "vonage" is no mail address`},
		"sender, number":   {func(r *dispatch.Route) { r.Senders["otp"]["twilio"] = "15555550100" }, `sender "otp" at "twilio" has 11 digits`},
		"check elsewhere":  {func(r *dispatch.Route) { r.Checks["sinch"] = nil }, `check of provider "sinch", which is not on the route`},
		"check nil":        {func(r *dispatch.Route) { r.Checks["vonage"] = nil }, `check of provider "vonage" is nil`},
		"priority":         {func(r *dispatch.Route) { r.Priority = 4 }, "priority 4 is unknown"},
		"no priority":      {func(r *dispatch.Route) { r.Priority = -1 }, "priority -1 is unknown"},
		"policy":           {func(r *dispatch.Route) { r.Policy.Attempts = -1 }, `route "sms": policy: -1 attempts`},
		"several": {func(r *dispatch.Route) {
			for _, s := range []string{"a", "b", "c", "d", "e"} {
				r.Senders[s] = map[string]string{"nobody": "x", "twilio": "\n", "vonage": ""}
			}
		}, `sender "a" at "twilio" has a line break`},
	} {
		t.Run(name, func(t *testing.T) {
			r := route()
			r.Checks = dispatch.Checks{}
			c.bend(&r)
			err := r.Validate()
			require.ErrorContains(t, err, c.want)
			for range 20 {
				require.EqualError(t, r.Validate(), err.Error(), "the same mistake, the same error")
			}
		})
	}
}

func TestContractValidate(t *testing.T) {
	good := dispatch.Contract{
		Name: "twilio", Account: "AC1", Encoding: 1, Timeout: time.Minute,
		Dedupe: dispatch.Dedupe{Window: 24 * time.Hour}, Search: dispatch.Search{Lag: time.Minute}, Echo: dispatch.Echo{Grace: time.Hour},
	}
	require.NoError(t, good.Validate())
	require.NoError(t, dispatch.Contract{Name: "a"}.Validate())
	for want, bend := range map[string]func(*dispatch.Contract){
		`contract "": name is empty`: func(c *dispatch.Contract) { c.Name = "" },
		"name has a character":       func(c *dispatch.Contract) { c.Name = "Twilio" },
		"account has a NUL":          func(c *dispatch.Contract) { c.Account = "a\x00" },
		"account has a line break":   func(c *dispatch.Contract) { c.Account = "abc\n" }, // B034: read from a file
		"encoding is negative":       func(c *dispatch.Contract) { c.Encoding = -1 },
		"time-out -1ns":              func(c *dispatch.Contract) { c.Timeout = -1 },
		"time-out 2562047h":          func(c *dispatch.Contract) { c.Timeout = math.MaxInt64 },
		"dedupe window -1ns":         func(c *dispatch.Contract) { c.Dedupe.Window = -1 },
		"dedupe window 2562047h":     func(c *dispatch.Contract) { c.Dedupe.Window = math.MaxInt64 },
		"search lag -1ns":            func(c *dispatch.Contract) { c.Search.Lag = -1 },
		"echo grace 2562047h":        func(c *dispatch.Contract) { c.Echo.Grace = math.MaxInt64 },
	} {
		c := good
		bend(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
}

func TestAttemptTimeout(t *testing.T) {
	for in, want := range map[time.Duration]time.Duration{
		0: 30 * time.Second, -1: 30 * time.Second, math.MinInt64: 30 * time.Second, 1: 1, time.Minute: time.Minute, math.MaxInt64: time.Hour,
	} {
		assert.Equal(t, want, dispatch.Contract{Timeout: in}.AttemptTimeout())
	}
}

// The numbers are stored: a changed one would misread every old row.
func TestStoredNumbersNeverChange(t *testing.T) {
	names := func(name func(int8) string, from, to int8) (list []string) {
		for n := from; n <= to; n++ {
			list = append(list, name(n))
		}
		return list
	}
	for _, c := range []struct {
		name     func(int8) string
		from, to int8
		want     string
	}{
		{func(n int8) string { return dispatch.Outcome(n).String() }, 0, 3, "unknown ok rejected unknown outcome"},
		{func(n int8) string { return dispatch.Scope(n).String() }, 0, 4, "moment sender account message unknown scope"},
		{func(n int8) string { return dispatch.Stage(n).String() }, 0, 3, "maybe sent not sent answered unknown stage"},
		{func(n int8) string { return dispatch.Cause(n).String() }, -1, 13, "unknown cause  dial certificate proxy proxy auth local bytes changed pool deadline connection body panic swept unknown cause"},
		{func(n int8) string { return dispatch.Priority(n).String() }, 0, 4, "default high normal low unknown priority"},
		{func(n int8) string { return dispatch.Channel(n).String() }, 0, 3, "unknown channel sms email unknown channel"},
		{func(n int8) string { return dispatch.UnknownAction(n).String() }, 0, 5, "default hold resend failover dead unknown action"},
		{func(n int8) string { return dispatch.Presence(n).String() }, 0, 3, "unclear present absent unknown presence"},
		{func(n int8) string { return dispatch.ReceiptKind(n).String() }, -1, 12, "unknown kind noted queued passed deferred delivered undelivered failed bounced complained unsubscribed opened clicked unknown kind"},
		{func(n int8) string { return dispatch.State(n).String() }, 0, 8, "no state pending sending unknown held dead sent cancelled no state"},
		{func(n int8) string { return dispatch.Reason(n).String() }, 0, 8, " rejected budget deadline unresolved superseded dropped changed unknown reason"},
	} {
		assert.Equal(t, c.want, strings.Join(names(c.name, c.from, c.to), " "))
	}
	assert.Equal(t, []dispatch.Notify{1, 2, 4, 8, 16, 32}, []dispatch.Notify{
		dispatch.NotifySent, dispatch.NotifyDead, dispatch.NotifyHeld, dispatch.NotifyCancelled, dispatch.NotifyUndelivered, dispatch.NotifyDelivered,
	})
	assert.Equal(t, []dispatch.KeyFault{0, 1, 2}, []dispatch.KeyFault{dispatch.KeyFine, dispatch.KeyInFlight, dispatch.KeyReused})
}
