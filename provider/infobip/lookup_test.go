package infobip_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

func TestLookup(t *testing.T) {
	f := newFake(t)
	cfg := config()
	cfg.BaseURL = f.URL
	p := open(t, cfg)
	twin, e := envelope(), envelope()
	ask := func(since time.Duration) dispatch.Found {
		now := time.Now()
		found, err := p.Lookup(t.Context(), dispatch.Query{Key: e.Key, Content: e.Content, Since: now.Add(-since), Until: now})
		require.NoError(t, err)
		return found
	}
	_, err := p.Send(t.Context(), twin)
	require.NoError(t, err)
	require.Equal(t, dispatch.Absent, ask(time.Minute).Presence, "the same text to the same number under another key")
	require.Equal(t, dispatch.Unclear, ask(48*time.Hour).Presence, "logs are kept for 48 hours")
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, dispatch.Found{Presence: dispatch.Present, ID: a.ID, Status: "PENDING_ACCEPTED"}, ask(time.Minute))
}

// What the logs don't say in so many words is not said here either.
func TestLogs(t *testing.T) {
	key, err := dispatch.ParseKey("01920000-0000-7000-8000-000000000001")
	require.NoError(t, err)
	log := func(group, id string) string {
		return `{"messageId":"01920000-0000-7000-8000-000000000001","status":{"groupId":` + group + `,"id":` + id + `}}`
	}
	for name, c := range map[string]struct {
		body string
		want dispatch.Presence
	}{
		"recorded":               {recorded(t, "logs.json"), dispatch.Present},
		"empty":                  {recorded(t, "logs_empty.json"), dispatch.Absent},
		"rejected":               {`{"results":[` + log("5", "12") + `]}`, dispatch.Unclear},
		"the duplicate's alone":  {`{"results":[` + log("5", "23") + `]}`, dispatch.Unclear},
		"the first one's behind": {`{"results":[` + log("5", "23") + `,` + log("2", "9") + `]}`, dispatch.Present},
		"another message's":      {`{"results":[{"messageId":"x","status":{"groupId":1}}]}`, dispatch.Unclear},
		"no status":              {`{"results":[{"messageId":"01920000-0000-7000-8000-000000000001"}]}`, dispatch.Unclear},
		"null":                   {`{"results":null}`, dispatch.Unclear},
		"nothing":                {`{}`, dispatch.Unclear},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := providertest.NewVendor(providertest.Options{Fault: providertest.Script(providertest.Fault{Status: 200, Body: c.body})})
			require.NoError(t, err)
			t.Cleanup(v.Close)
			cfg := config()
			cfg.BaseURL = v.URL
			found, err := open(t, cfg).Lookup(t.Context(), dispatch.Query{Key: key, Since: time.Now(), Until: time.Now()})
			require.NoError(t, err)
			require.Equal(t, c.want, found.Presence)
		})
	}
}
