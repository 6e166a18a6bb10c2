package vonage_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/vonage"
)

func query(e dispatch.Envelope) dispatch.Query {
	now := time.Now()
	return dispatch.Query{Key: e.Key, Content: e.Content, From: e.From, Since: now.Add(-time.Minute), Until: now}
}

// A lookalike to the same number with the same text is another message: only
// the reference counts.
func TestLookup(t *testing.T) {
	for _, api := range []vonage.API{vonage.Messages, vonage.SMS} {
		f := newFake(t)
		cfg := config()
		cfg.API, cfg.BaseURL, cfg.ReportsURL, cfg.ReportLag = api, f.URL, f.URL, time.Minute
		p := open(t, cfg)
		twin, e := envelope(), envelope()
		_, err := p.Send(t.Context(), twin)
		require.NoError(t, err)

		found, err := p.Lookup(t.Context(), query(e))
		require.NoError(t, err)
		require.Equal(t, dispatch.Absent, found.Presence, "the report has the twin only")

		a, err := p.Send(t.Context(), e)
		require.NoError(t, err)
		found, err = p.Lookup(t.Context(), query(e))
		require.NoError(t, err)
		require.Equal(t, dispatch.Found{Presence: dispatch.Present, ID: a.ID, Status: "submitted"}, found)

		f.NoRef = true
		found, err = p.Lookup(t.Context(), query(e))
		require.NoError(t, err)
		require.Equal(t, dispatch.Unclear, found.Presence, "a record without a reference may be ours")

		f.NoRef, f.Page = false, 1
		found, err = p.Lookup(t.Context(), query(e))
		require.NoError(t, err)
		require.Equal(t, dispatch.Unclear, found.Presence, "there is another page")

		f.Page = 0
		long := query(envelope())
		long.Since = long.Until.Add(-25 * time.Hour)
		found, err = p.Lookup(t.Context(), long)
		require.NoError(t, err)
		require.Equal(t, dispatch.Unclear, found.Presence, "a report covers a day at most")
	}
}

// What the vendor doesn't say in so many words is not said here either.
func TestReports(t *testing.T) {
	key, err := dispatch.ParseKey("01920000-0000-7000-8000-000000000001")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		answer providertest.Fault
		want   dispatch.Presence
		fails  bool
	}{
		"recorded":   {providertest.Fault{Status: 200, Body: recorded(t, "report.json")}, dispatch.Present, false},
		"truncated":  {providertest.Fault{Status: 200, Body: recorded(t, "report_truncated.json")}, dispatch.Unclear, false},
		"empty":      {providertest.Fault{Status: 200, Body: recorded(t, "report_empty.json")}, dispatch.Absent, false},
		"no records": {providertest.Fault{Status: 200, Body: `{"request_status":"SUCCESS"}`}, dispatch.Unclear, false},
		"null":       {providertest.Fault{Status: 200, Body: `{"request_status":"SUCCESS","records":null}`}, dispatch.Unclear, false},
		"pending":    {providertest.Fault{Status: 200, Body: `{"request_status":"PENDING","records":[]}`}, dispatch.Unclear, false},
		"no status":  {providertest.Fault{Status: 200, Body: `{"records":[]}`}, dispatch.Unclear, false},
		"a page":     {providertest.Fault{Status: 200, Body: "<html>"}, dispatch.Unclear, false},
		"cut":        {providertest.Fault{Status: 200, Body: recorded(t, "report_empty.json"), Wire: providertest.HalfBody}, dispatch.Unclear, false},
		"endless":    {providertest.Fault{Status: 200, Body: recorded(t, "report_empty.json"), Wire: providertest.Flood}, dispatch.Unclear, false},
		"another 2xx": {providertest.Fault{
			Status: 202, Body: recorded(t, "report_empty.json"),
		}, dispatch.Unclear, true},
		"404":        {providertest.Fault{Status: 404, Body: "{}"}, dispatch.Unclear, true},
		"redirected": {providertest.Redirect(http.StatusFound, "/login"), dispatch.Unclear, true},
		"dropped":    {providertest.Fault{Wire: providertest.Drop}, dispatch.Unclear, true},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := providertest.NewVendor(providertest.Options{Fault: providertest.Script(c.answer)})
			require.NoError(t, err)
			t.Cleanup(v.Close)
			cfg := config()
			cfg.ReportsURL, cfg.ReportLag = v.URL, time.Minute
			e := envelope()
			e.Key = key
			found, err := open(t, cfg).Lookup(t.Context(), query(e))
			require.Equal(t, c.fails, err != nil)
			require.Equal(t, c.want, found.Presence)
			require.Equal(t, http.MethodGet, v.AllCalls()[0].Method, "a look-up sends nothing")
		})
	}
	_, err = open(t, config()).Lookup(t.Context(), query(envelope()))
	require.True(t, errors.Is(err, dispatch.ErrNoLookup))
}
