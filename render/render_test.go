package render_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/render"
)

type person struct{ Name, Code string }

func parse(t *testing.T, s render.Source) *render.Template {
	t.Helper()
	s.Name = "welcome"
	tmpl, err := render.Parse(s)
	require.NoError(t, err)
	return tmpl
}

func mail() dispatch.Intent {
	return dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.Email{To: []dispatch.Address{{Email: "ada@example.com"}}}}
}

func TestIntentIsFilledAndSaysFromWhat(t *testing.T) {
	tmpl := parse(t, render.Source{Subject: "Hello {{.Name}}\n", Text: "Hi {{.Name}} & all", HTML: "<b>{{.Name}}</b>"})
	before := mail()
	i, err := tmpl.Intent(before, person{Name: "<Ada> & Co"})
	require.NoError(t, err)
	assert.Equal(t, dispatch.Email{
		To: []dispatch.Address{{Email: "ada@example.com"}}, Subject: "Hello <Ada> & Co", Text: "Hi <Ada> & Co & all",
		HTML: "<b>&lt;Ada&gt; &amp; Co</b>",
	}, i.Content)
	assert.Equal(t, "welcome", i.Template.Name)
	assert.Len(t, i.Template.Revision, 32)
	assert.Equal(t, i.Template, tmpl.Evidence())
	assert.Empty(t, before.Template, "the intent that was given stays as it was")
	_, err = i.Normalize()
	require.NoError(t, err)

	sms, err := parse(t, render.Source{Text: "Your code is {{.Code}}"}).Intent(dispatch.Intent{Content: dispatch.SMS{To: "+15555550123", Sender: "otp"}}, person{Code: "482901"})
	require.NoError(t, err)
	assert.Equal(t, dispatch.SMS{To: "+15555550123", Sender: "otp", Body: "Your code is 482901"}, sms.Content)
}

// A revision that nobody names is that of the texts: any edit is another one,
// and the same texts are the same one, also in another process.
func TestRevision(t *testing.T) {
	base := render.Source{Subject: "a", Text: "b", HTML: "c"}
	rev := func(s render.Source) string { return parse(t, s).Evidence().Revision }
	assert.Equal(t, "ac678da99e6e9ebf18eacdce8293836e", rev(base))
	seen := map[string]bool{rev(base): true}
	for _, s := range []render.Source{
		{Subject: "a", Text: "b"}, {Subject: "ab", HTML: "c"}, {Subject: "a", Text: "bc"}, {Text: "ab", HTML: "c"}, {Subject: "a", Text: "b", HTML: "d"},
	} {
		assert.False(t, seen[rev(s)], s)
		seen[rev(s)] = true
	}
	base.Revision = "2026-11-30"
	assert.Equal(t, "2026-11-30", rev(base))
}

// An error says where, never what: data are somebody's.
func TestIntentRefuses(t *testing.T) {
	secret := errors.New("quotes 482901")
	funcs := map[string]any{"fails": func(string) (string, error) { return "", secret }, "panics": func() string { panic("482901") }}
	long := strings.Repeat("x", dispatch.MaxEmail/2+1)
	for want, c := range map[string]struct {
		source render.Source
		intent dispatch.Intent
		data   any
	}{
		`text: template: text:1:8: executing "text" at <.Surname>`:      {render.Source{Text: "Hello {{.Surname}}"}, mail(), person{}},
		`text: template: text:1:2: executing "text" at <.surname>`:      {render.Source{Text: "{{.surname}}"}, mail(), map[string]string{"code": "482901"}},
		`html: template: html:1:2: executing "html" at <fails .Code>`:   {render.Source{HTML: "{{fails .Code}}", Funcs: funcs}, mail(), person{Code: "482901"}},
		`subject: template: subject:1:2: executing "subject" at <panic`: {render.Source{Subject: "{{panics}}", Funcs: funcs}, mail(), nil},
		`html/template:html:`:       {render.Source{HTML: "{{if .Name}}<a href='{{end}}{{.Name}}"}, mail(), person{Name: "482901"}},
		`text is larger than`:       {render.Source{Text: "{{.}}{{.}}"}, mail(), long},
		`html is larger than`:       {render.Source{HTML: "{{.}}{{.}}"}, mail(), long},
		`subject is filled already`: {render.Source{Subject: "x"}, dispatch.Intent{Content: dispatch.Email{Subject: "y"}}, nil},
		`is not one for an SMS`:     {render.Source{Text: "x", HTML: "y"}, dispatch.Intent{Content: dispatch.SMS{}}, nil},
		`is not one for an SMS: it`: {render.Source{Subject: "y"}, dispatch.Intent{Content: dispatch.SMS{}}, nil},
		`Content is neither`:        {render.Source{Text: "x"}, dispatch.Intent{}, nil},
	} {
		_, err := parse(t, c.source).Intent(c.intent, c.data)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "482901")
	}
	// A subject of two lines is the enqueue's to refuse.
	i, err := parse(t, render.Source{Subject: "{{.Name}}", Text: "x"}).Intent(mail(), person{Name: "a\r\nBcc: eve@example.com"})
	require.NoError(t, err)
	_, err = i.Normalize()
	require.ErrorContains(t, err, "Content.Subject")
}

func TestParseRefuses(t *testing.T) {
	for want, s := range map[string]render.Source{
		"has no name":              {Text: "x"},
		`template "a" is empty`:    {Name: "a", Revision: "1"},
		`template "a": template: `: {Name: "a", Text: "{{"},
		`unclosed action`:          {Name: "a", HTML: "{{"},
		`function "nope"`:          {Name: "a", Subject: "{{nope}}"},
	} {
		_, err := render.Parse(s)
		require.ErrorContains(t, err, want)
	}
}
