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

// The marks stand in for what must never be quoted.
const (
	secretNumber = "+15555550100"
	secretBody   = "Your code is 482901"
	secretMail   = "ada@example.com"
)

func sms() dispatch.Intent {
	return dispatch.Intent{Key: dispatch.NewKey(), Route: "sms", Content: dispatch.SMS{To: secretNumber, Sender: "otp", Body: secretBody}}
}

// refused checks that an error names the field, says why, and holds nothing
// personal (B162).
func refused(t *testing.T, i dispatch.Intent, field, reason string) {
	t.Helper()
	_, err := i.Normalize()
	var f *dispatch.FieldError
	require.ErrorAs(t, err, &f)
	assert.Equal(t, field, f.Field)
	assert.Contains(t, f.Reason, reason)
	assert.Equal(t, f.Field+" "+f.Reason, err.Error())
	for _, s := range []string{"5555550100", "482901", "ada@", "Ada", "secret", "Bcc"} {
		assert.NotContains(t, strings.ReplaceAll(strings.ReplaceAll(err.Error(), "ada@example.com", ""), "+15555550123", ""), s)
	}
	assert.NotContains(t, err.Error(), "\n")
	_, again := i.Normalize()
	assert.EqualError(t, again, err.Error(), "the same mistake, the same error")
}

func TestNormalizeKeepsAGoodIntent(t *testing.T) {
	in := dispatch.Intent{
		Key: dispatch.NewKey(), Route: "sms_2-a", Provider: "twilio",
		Content:   dispatch.SMS{To: "+1 (555) 555-0100", Body: "Grüße 👋\r\n\tzweite Zeile"},
		NotBefore: time.Now().Add(time.Minute), Deadline: time.Now().Add(time.Hour), Priority: dispatch.Low,
		OnUnknown: dispatch.OnUnknown{Action: dispatch.UnknownDead, After: time.Minute},
		Notify:    dispatch.NotifySent | dispatch.NotifyDelivered | dispatch.NotifyUndelivered | dispatch.NotifyDead | dispatch.NotifyHeld | dispatch.NotifyCancelled,
		Template:  dispatch.Template{Name: "login", Revision: "7"},
		Metadata:  map[string]string{"order": "12\n3", "empty": ""}, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Linked: dispatch.NewKey(),
	}
	got, err := in.Normalize()
	require.NoError(t, err)
	want := in
	want.Content = dispatch.SMS{To: "+15555550100", Body: "Grüße 👋\r\n\tzweite Zeile"}
	assert.Equal(t, want, got)
	again, err := got.Normalize()
	require.NoError(t, err)
	assert.Equal(t, got, again, "normal is normal")
}

func TestNormalizeRefusesIntent(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		bend          func(*dispatch.Intent)
		field, reason string
	}{
		"no key":             {func(i *dispatch.Intent) { i.Key = dispatch.Key{} }, "Key", "is zero"},
		"key of version 1":   {func(i *dispatch.Intent) { i.Key[6] = 0x10 }, "Key", "version 1"},
		"key without layout": {func(i *dispatch.Intent) { i.Key[8] = 0 }, "Key", "RFC 9562"},
		"route":              {func(i *dispatch.Intent) { i.Route = "SMS" }, "Route", "a-z"},
		"long route":         {func(i *dispatch.Intent) { i.Route = strings.Repeat("a", 41) }, "Route", "40 characters"},
		"route with NUL":     {func(i *dispatch.Intent) { i.Route = "a\x00" }, "Route", "a-z"},
		"provider":           {func(i *dispatch.Intent) { i.Provider = "a b" }, "Provider", "a-z"},
		"no content":         {func(i *dispatch.Intent) { i.Content = nil }, "Content", "is missing"},
		"pointer":            {func(i *dispatch.Intent) { i.Content = &dispatch.SMS{To: secretNumber, Body: "secret"} }, "Content", "neither"},
		"nil pointer":        {func(i *dispatch.Intent) { i.Content = (*dispatch.Email)(nil) }, "Content", "neither"},
		"look-alike":         {func(i *dispatch.Intent) { i.Content = lookAlike{} }, "Content", "neither"},

		"both ends":           {func(i *dispatch.Intent) { i.ValidFor, i.Deadline = time.Hour, now.Add(time.Hour) }, "Deadline", "both set"},
		"never and an end":    {func(i *dispatch.Intent) { i.ValidFor, i.Deadline = dispatch.Never, now.Add(time.Hour) }, "Deadline", "both set"},
		"negative":            {func(i *dispatch.Intent) { i.ValidFor = -2 }, "ValidFor", "negative"},
		"most negative":       {func(i *dispatch.Intent) { i.ValidFor = math.MinInt64 }, "ValidFor", "negative"},
		"for ever":            {func(i *dispatch.Intent) { i.ValidFor = math.MaxInt64 }, "ValidFor", "want Never"},
		"deadline in 1970":    {func(i *dispatch.Intent) { i.Deadline = time.Unix(300, 0) }, "Deadline", "outside the years"},
		"deadline in 10000":   {func(i *dispatch.Intent) { i.Deadline = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "Deadline", "outside the years"},
		"start before Christ": {func(i *dispatch.Intent) { i.NotBefore = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }, "NotBefore", "outside the years"},
		"ends before it starts": {func(i *dispatch.Intent) {
			i.NotBefore, i.Deadline = now.Add(time.Hour), now.Add(time.Minute)
		}, "Deadline", "not after NotBefore"},
		"ends as it starts": {func(i *dispatch.Intent) { i.NotBefore, i.Deadline = now, now }, "Deadline", "not after NotBefore"},
		"valid too short":   {func(i *dispatch.Intent) { i.NotBefore, i.ValidFor = now.Add(time.Hour), time.Minute }, "ValidFor", "before NotBefore"},

		"priority":          {func(i *dispatch.Intent) { i.Priority = 4 }, "Priority", "4 is unknown"},
		"negative priority": {func(i *dispatch.Intent) { i.Priority = -1 }, "Priority", "unknown"},
		"notify":            {func(i *dispatch.Intent) { i.Notify = 1 << 10 }, "Notify", "unknown event"},
		"negative notify":   {func(i *dispatch.Intent) { i.Notify = -1 }, "Notify", "unknown event"},
		"action":            {func(i *dispatch.Intent) { i.OnUnknown.Action = 5 }, "OnUnknown", "action 5"},
		"negative action":   {func(i *dispatch.Intent) { i.OnUnknown.Action = -1 }, "OnUnknown", "action -1"},
		"negative after":    {func(i *dispatch.Intent) { i.OnUnknown.After = -1 }, "OnUnknown", "after"},
		"huge after":        {func(i *dispatch.Intent) { i.OnUnknown.After = math.MaxInt64 }, "OnUnknown", "after"},
		"template name":     {func(i *dispatch.Intent) { i.Template.Name = "a\nb" }, "Template.Name", "line break at byte 1"},
		"template revision": {func(i *dispatch.Intent) { i.Template.Revision = strings.Repeat("7", 201) }, "Template.Revision", "201 bytes"},
		"trace":             {func(i *dispatch.Intent) { i.TraceParent = "00\r\nX: y" }, "TraceParent", "line break"},
		"trace too long":    {func(i *dispatch.Intent) { i.TraceParent = strings.Repeat("0", 129) }, "TraceParent", "129 bytes"},
		"linked":            {func(i *dispatch.Intent) { i.Linked = dispatch.Key{1} }, "Linked", "RFC 9562"},
		"linked to itself":  {func(i *dispatch.Intent) { i.Linked = i.Key }, "Linked", "is the message itself"},

		// B116: a NUL or broken UTF-8 would fail the INSERT, and with it the
		// caller's transaction.
		"metadata NUL":       {func(i *dispatch.Intent) { i.Metadata = map[string]string{"a": "secret\x00"} }, "Metadata", "NUL at byte 6"},
		"metadata UTF-8":     {func(i *dispatch.Intent) { i.Metadata = map[string]string{"a": "\xff"} }, "Metadata", "valid UTF-8"},
		"metadata name":      {func(i *dispatch.Intent) { i.Metadata = map[string]string{"secret\x00": ""} }, "Metadata", "NUL"},
		"metadata no name":   {func(i *dispatch.Intent) { i.Metadata = map[string]string{"": "x"} }, "Metadata", "empty name"},
		"metadata name line": {func(i *dispatch.Intent) { i.Metadata = map[string]string{"a\r\nBcc": "x"} }, "Metadata", "line break"},
		"metadata size":      {func(i *dispatch.Intent) { i.Metadata = map[string]string{"a": strings.Repeat("x", 8<<10)} }, "Metadata", "8193 bytes"},
		"metadata, several": {func(i *dispatch.Intent) {
			i.Metadata = map[string]string{"a": "\x00", "b": "\xff", "c\n": "", "": "", "d": "xx\x00"}
		}, "Metadata", "empty name"},
	} {
		t.Run(name, func(t *testing.T) {
			i := sms()
			c.bend(&i)
			refused(t, i, c.field, c.reason)
		})
	}
}

// lookAlike gets past the sealed method by embedding.
type lookAlike struct{ dispatch.SMS }

func TestNormalizeRefusesSMS(t *testing.T) {
	for name, c := range map[string]struct{ to, sender, body, field, reason string }{
		"no number":          {"", "", "x", "Content.To", "is empty"},
		"number without +":   {"15555550100", "", "x", "Content.To", "no leading +"},
		"second line, B081":  {"+15555550100\nx", "", "x", "Content.To", "U+000A"},
		"sender line":        {secretNumber, "a\r\nb", "x", "Content.Sender", "line break"},
		"sender too long":    {secretNumber, strings.Repeat("a", 101), "x", "Content.Sender", "101 bytes"},
		"empty, B097":        {secretNumber, "", "", "Content.Body", "is empty"},
		"blank, B097":        {secretNumber, "", " \r\n\t\u00a0", "Content.Body", "is empty"},
		"zero width, B097":   {secretNumber, "", "\u200b", "Content.Body", "is empty"},
		"fillers, B097":      {secretNumber, "", "\u3164\u115f\u2800\ufe0f\u034f", "Content.Body", "is empty"},
		"NUL, B116":          {secretNumber, "", secretBody + "\x00", "Content.Body", "NUL at byte 19"},
		"broken UTF-8, B116": {secretNumber, "", secretBody + "\xed\xa0\x80", "Content.Body", "not valid UTF-8"},
		"too long":           {secretNumber, "", strings.Repeat("a", 1601), "Content.Body", "1600 UTF-16 units"},
		"pairs too long":     {secretNumber, "", strings.Repeat("👋", 801), "Content.Body", "1600 UTF-16 units"},
	} {
		t.Run(name, func(t *testing.T) {
			i := sms()
			i.Content = dispatch.SMS{To: c.to, Sender: c.sender, Body: c.body}
			refused(t, i, c.field, c.reason)
		})
	}
}

func TestSMSBodyUpToItsLimit(t *testing.T) {
	for name, body := range map[string]string{
		"plain": strings.Repeat("a", 1600), "three bytes": strings.Repeat("’", 1600), "pairs": strings.Repeat("👋", 800),
		"controls stay": "a\u2028b\x07", "marks beside text": "\u200ba",
	} {
		i := sms()
		i.Content = dispatch.SMS{To: secretNumber, Body: body}
		got, err := i.Normalize()
		require.NoError(t, err, name)
		assert.Equal(t, body, got.Content.(dispatch.SMS).Body, "%s: the text is never touched", name)
	}
}

func TestValidName(t *testing.T) {
	for _, s := range []string{"a", "0", "sms-otp_2", strings.Repeat("a", 40)} {
		assert.NoError(t, dispatch.ValidName(s), s)
	}
	for _, s := range []string{"", "A", "a b", "a/b", "ä", "a\n", "a.b", strings.Repeat("a", 41)} {
		assert.Error(t, dispatch.ValidName(s), s)
	}
}
