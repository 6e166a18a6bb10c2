package dispatch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

func TestFreeze(t *testing.T) {
	freeze := func(c dispatch.Content, pinned string) (map[string]string, error) {
		return route().Freeze(dispatch.Intent{Content: c, Provider: pinned})
	}
	m, err := freeze(dispatch.SMS{Sender: "otp"}, "")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"twilio": "+15555550100", "vonage": "Shop"}, m)
	m, err = freeze(dispatch.Email{Sender: "news"}, "vonage")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"vonage": "ShopNews"}, m, "not usable at the other provider")
	m, err = freeze(dispatch.SMS{}, "twilio")
	require.NoError(t, err)
	assert.Nil(t, m, "each provider's default")

	for want, i := range map[string]dispatch.Intent{
		`Content.Sender "nobody?" is not a sender of route "sms"`:        {Content: dispatch.SMS{Sender: "nobody\n"}},
		`Content.Sender has no registered sender at the pinned provider`: {Content: dispatch.SMS{Sender: "news"}, Provider: "twilio"},
		`Provider "sinch" is not on route "sms"`:                         {Content: dispatch.SMS{}, Provider: "sinch"},
	} {
		_, err = route().Freeze(i)
		var f *dispatch.FieldError
		require.ErrorAs(t, err, &f)
		assert.EqualError(t, err, want)
	}
}

// takes is a check for texts of at most n bytes.
func takes(n int) func(dispatch.Content) error {
	return func(c dispatch.Content) error {
		if len(c.(dispatch.SMS).Body) > n {
			return &dispatch.FieldError{Field: "Content.Body", Reason: "is too long"}
		}
		return nil
	}
}

func TestChecks(t *testing.T) {
	quoting := func(c dispatch.Content) error { return errors.New(c.(dispatch.SMS).Body) }
	panics := func(c dispatch.Content) error { panic(c.(dispatch.SMS).Body) }
	var nobody *dispatch.FieldError
	for name, c := range map[string]struct {
		checks         dispatch.Checks
		sender, pinned string
		want           string
	}{
		"none":                       {want: ""},
		"one takes it":               {checks: dispatch.Checks{"twilio": takes(1), "vonage": takes(100)}},
		"one has no check":           {checks: dispatch.Checks{"twilio": takes(1)}},
		"nobody takes it":            {checks: dispatch.Checks{"twilio": takes(1), "vonage": takes(2)}, want: "Content.Body is too long (twilio); Content.Body is too long (vonage)"},
		"the pinned one doesn't":     {checks: dispatch.Checks{"twilio": takes(1), "vonage": takes(100)}, pinned: "twilio", want: "Content.Body is too long (twilio)"},
		"the pinned one does":        {checks: dispatch.Checks{"twilio": takes(1), "vonage": takes(100)}, pinned: "vonage"},
		"the sender's one doesn't":   {checks: dispatch.Checks{"twilio": takes(100), "vonage": takes(1)}, sender: "news", want: "Content.Body is too long (vonage)"},
		"an error that quotes":       {checks: dispatch.Checks{"vonage": quoting}, sender: "news", want: "Content is refused by the check (vonage)"},
		"a panic":                    {checks: dispatch.Checks{"vonage": panics}, sender: "news", want: "Content made the check panic (vonage)"},
		"a nil pointer for an error": {checks: dispatch.Checks{"vonage": func(dispatch.Content) error { return nobody }}, sender: "news", want: "Content is refused by the check (vonage)"},
		"a reason of two lines, far too long": {
			checks: dispatch.Checks{"vonage": func(dispatch.Content) error {
				return &dispatch.FieldError{Field: "Content", Reason: "is\n" + strings.Repeat("x", 1000)}
			}},
			sender: "news", want: "Content is?" + strings.Repeat("x", 197) + " (vonage)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := route()
			r.Checks = c.checks
			require.NoError(t, r.Validate())
			_, err := r.Freeze(dispatch.Intent{Content: dispatch.SMS{Sender: c.sender, Body: "zebra"}, Provider: c.pinned})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			var f *dispatch.FieldError
			require.ErrorAs(t, err, &f)
			require.EqualError(t, err, c.want)
		})
	}
}

// Do asks the check of the provider that it was given, and makes no attempt.
func TestDoChecks(t *testing.T) {
	p := &busy{}
	r := dispatch.Route{Checks: dispatch.Checks{"busy": takes(1), "other": takes(100)}}
	_, err := dispatch.Do(t.Context(), p, r, dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: "zebra"}})
	require.EqualError(t, err, "Content.Body is too long (busy)")
	require.Zero(t, p.attempts)
}
