package dispatch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

func mail() dispatch.Email {
	return dispatch.Email{Sender: "receipts", To: []dispatch.Address{{Name: "Ada", Email: secretMail}}, Subject: "Receipt", Text: secretBody}
}

func email(bend func(*dispatch.Email)) dispatch.Intent {
	c := mail()
	bend(&c)
	return dispatch.Intent{Key: dispatch.NewKey(), Content: c}
}

func addresses(n int) []dispatch.Address {
	list := make([]dispatch.Address, n)
	for i := range list {
		list[i].Email = fmt.Sprintf("a%d@example.com", i)
	}
	return list
}

func TestNormalizeRefusesAddress(t *testing.T) {
	for name, c := range map[string]struct {
		address dispatch.Address
		reason  string
	}{
		"empty":              {dispatch.Address{Name: "Ada"}, "address is empty"},
		"no at":              {dispatch.Address{Email: "ada"}, "not a bare mail address"},
		"too long":           {dispatch.Address{Email: strings.Repeat("a", 244) + "@example.com"}, "256 bytes"},
		"SMTP command, B081": {dispatch.Address{Email: "a@example.com\r\nRCPT TO:<b@example.com>"}, "line break at byte 13"},
		"newline, B081":      {dispatch.Address{Email: "a@example.com\n"}, "line break at byte 13"},
		"NUL, B116":          {dispatch.Address{Email: "a\x00@example.com"}, "NUL at byte 1"},
		"UTF-8, B116":        {dispatch.Address{Email: "a\xff@example.com"}, "not valid UTF-8"},
		// B082: name and address are two fields.
		"name inside, B082": {dispatch.Address{Email: "Ada <ada@example.com>"}, "address has character U+0020"},
		"brackets, B082":    {dispatch.Address{Email: "<ada@example.com>"}, "not a bare"},
		"quoted, B082":      {dispatch.Address{Email: `"ada"@example.com`}, "not a bare"},
		"comment, B082":     {dispatch.Address{Email: "ada@example.com(secret)"}, "not a bare"},
		"two, B082":         {dispatch.Address{Email: "ada@example.com,b@example.com"}, "not a bare"},
		"group, B082":       {dispatch.Address{Email: "g:ada@example.com;"}, "not a bare"},
		"name line, B081":   {dispatch.Address{Name: "Ada\r\nBcc: b@example.com", Email: secretMail}, "name has a line break at byte 3"},
		"name control":      {dispatch.Address{Name: "Ada\x07", Email: secretMail}, "name has control character U+0007"},
		"name separator":    {dispatch.Address{Name: "Ada\u2028", Email: secretMail}, "U+2028"},
		"name too long":     {dispatch.Address{Name: strings.Repeat("a", 201), Email: secretMail}, "name has 201 bytes"},
		"hidden line, B082": {dispatch.Address{Name: "=?utf-8?q?a=0D=0AX?=", Email: secretMail}, "name hides a line break"},
		// B084: what nobody sees is named by its code point.
		"no-break space, B084":  {dispatch.Address{Email: "a\u00a0b@example.com"}, "U+00A0 at byte 1"},
		"direction mark, B084":  {dispatch.Address{Email: "a@example.com\u202c"}, "U+202C"},
		"byte order mark, B084": {dispatch.Address{Email: "\ufeffa@example.com"}, "U+FEFF at byte 0"},
		"zero width, B084":      {dispatch.Address{Email: "a@example.com\u200b"}, "U+200B"},
		"Hangul filler":         {dispatch.Address{Email: "a\u3164@example.com"}, "U+3164"},
		"variation selector":    {dispatch.Address{Email: "a\ufe0f@example.com"}, "U+FE0F"},
		"soft hyphen":           {dispatch.Address{Email: "a\u00ad@example.com"}, "U+00AD"},
		"tag character":         {dispatch.Address{Email: "a@example.com\U000E0041"}, "U+E0041"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, email(func(e *dispatch.Email) { e.To = append(e.To, c.address) }), "Content.To[1]", c.reason)
			refused(t, email(func(e *dispatch.Email) { e.CC = []dispatch.Address{c.address} }), "Content.CC[0]", c.reason)
			refused(t, email(func(e *dispatch.Email) { e.BCC = []dispatch.Address{c.address} }), "Content.BCC[0]", c.reason)
			refused(t, email(func(e *dispatch.Email) { e.ReplyTo = []dispatch.Address{c.address} }), "Content.ReplyTo[0]", c.reason)
		})
	}
}

func TestNormalizeRefusesEmail(t *testing.T) {
	header := func(name, value string) func(*dispatch.Email) {
		return func(e *dispatch.Email) {
			e.Headers = []dispatch.Header{{Name: "X-Ok", Value: "1"}, {Name: name, Value: value}}
		}
	}
	file := func(a dispatch.Attachment) func(*dispatch.Email) {
		return func(e *dispatch.Email) { e.Attachments = []dispatch.Attachment{a} }
	}
	template := func(p dispatch.ProviderTemplate) func(*dispatch.Email) {
		return func(e *dispatch.Email) { e.Template = p }
	}
	for name, c := range map[string]struct {
		bend          func(*dispatch.Email)
		field, reason string
	}{
		"nobody":           {func(e *dispatch.Email) { e.To = nil; e.CC = addresses(1) }, "Content.To", "is empty"},
		"too many":         {func(e *dispatch.Email) { e.To, e.CC, e.BCC = addresses(20), addresses(20), addresses(11) }, "Content.To", "51 addresses"},
		"too many answers": {func(e *dispatch.Email) { e.ReplyTo = addresses(11) }, "Content.ReplyTo", "10 addresses"},
		"sender line":      {func(e *dispatch.Email) { e.Sender = "a\nb" }, "Content.Sender", "line break"},

		"subject, B081":        {func(e *dispatch.Email) { e.Subject = "Hi\r\nBcc: b@example.com" }, "Content.Subject", "line break at byte 2"},
		"subject CR":           {func(e *dispatch.Email) { e.Subject = "Hi\rthere" }, "Content.Subject", "line break"},
		"subject too long":     {func(e *dispatch.Email) { e.Subject = strings.Repeat("a", 901) }, "Content.Subject", "901 bytes"},
		"subject hides a line": {func(e *dispatch.Email) { e.Subject = "=?utf-8?b?SGkNCkJjYzogYg==?=" }, "Content.Subject", "hides a line break"},
		"subject NUL, B116":    {func(e *dispatch.Email) { e.Subject = "a\x00" }, "Content.Subject", "NUL"},
		"text NUL, B116":       {func(e *dispatch.Email) { e.Text = "secret\x00" }, "Content.Text", "NUL at byte 6"},
		"HTML UTF-8, B116":     {func(e *dispatch.Email) { e.HTML = "<p>\xff" }, "Content.HTML", "valid UTF-8"},
		"both bad":             {func(e *dispatch.Email) { e.HTML, e.Text = "\xff", "\x00" }, "Content.Text", "NUL"},
		"empty, B097":          {func(e *dispatch.Email) { e.Text = "" }, "Content.Text", "both empty"},
		"blank, B097":          {func(e *dispatch.Email) { e.Text, e.HTML = " \n", "\u200b" }, "Content.Text", "both empty"},

		"header value, B081":  {header("List-Unsubscribe", "<https://example.com>\n"), "Content.Headers[1]", "value has a line break"},
		"header name, B081":   {header("X-A: b\r\nBcc", "x"), "Content.Headers[1]", "name has character U+003A at byte 3"},
		"header name space":   {header("X A", "x"), "Content.Headers[1]", "U+0020"},
		"header not ASCII":    {header("X-Ä", "x"), "Content.Headers[1]", "U+00C4"},
		"header empty":        {header("", "x"), "Content.Headers[1]", "may set"},
		"header X-":           {header("X-", "x"), "Content.Headers[1]", "may set"},
		"header From":         {header("From", "x"), "Content.Headers[1]", "may set"},
		"header bcc":          {header("bCC", "x"), "Content.Headers[1]", "may set"},
		"header Message-ID":   {header("Message-ID", "x"), "Content.Headers[1]", "may set"},
		"header MIME":         {header("Content-Type", "x"), "Content.Headers[1]", "may set"},
		"header Date":         {header("Date", "x"), "Content.Headers[1]", "may set"},
		"header DKIM":         {header("DKIM-Signature", "x"), "Content.Headers[1]", "may set"},
		"header SendGrid":     {header("x-SMTPAPI", `{"to":["b@example.com"]}`), "Content.Headers[1]", "steers a vendor"},
		"header SES":          {header("X-SES-Source-ARN", "x"), "Content.Headers[1]", "steers a vendor"},
		"header Mailjet":      {header("X-Mailjet-Campaign", "x"), "Content.Headers[1]", "steers a vendor"},
		"header NUL":          {header("X-A", "\x00"), "Content.Headers[1]", "NUL"},
		"header value length": {header("X-A", strings.Repeat("a", 901)), "Content.Headers[1]", "901 bytes"},
		"header hides a line": {header("X-A", "=?utf-8?q?a=0Ab?="), "Content.Headers[1]", "hides a line break"},
		"headers":             {func(e *dispatch.Email) { e.Headers = make([]dispatch.Header, 51) }, "Content.Headers", "50 fields"},

		"file name, B081":  {file(dispatch.Attachment{Name: "a\"\r\nX: y.pdf", Type: "application/pdf"}), "Content.Attachments[0]", "name has a line break at byte 2"},
		"file no name":     {file(dispatch.Attachment{Type: "application/pdf"}), "Content.Attachments[0]", "has no name"},
		"file path":        {file(dispatch.Attachment{Name: "../a.pdf", Type: "application/pdf"}), "Content.Attachments[0]", "path"},
		"file DOS path":    {file(dispatch.Attachment{Name: `c:\a.pdf`, Type: "application/pdf"}), "Content.Attachments[0]", "path"},
		"file no type":     {file(dispatch.Attachment{Name: "a.pdf"}), "Content.Attachments[0]", "media type"},
		"file half a type": {file(dispatch.Attachment{Name: "a.pdf", Type: "pdf"}), "Content.Attachments[0]", "media type"},
		"file type line":   {file(dispatch.Attachment{Name: "a.pdf", Type: "application/pdf\r\nX: y"}), "Content.Attachments[0]", "type has a line break"},
		"file id":          {file(dispatch.Attachment{Name: "a.png", Type: "image/png", ContentID: "<a>"}), "Content.Attachments[0]", "bracket"},
		"file id line":     {file(dispatch.Attachment{Name: "a.png", Type: "image/png", ContentID: "a\nb"}), "Content.Attachments[0]", "content id has a line break"},
		"all bad":          {file(dispatch.Attachment{Name: "a\n", Type: "b\x00", ContentID: "c\r"}), "Content.Attachments[0]", "name has"},
		"files":            {func(e *dispatch.Email) { e.Attachments = make([]dispatch.Attachment, 51) }, "Content.Attachments", "50 files"},
		"tags":             {func(e *dispatch.Email) { e.Tags = make([]string, 11) }, "Content.Tags", "10 tags"},
		"tag empty":        {func(e *dispatch.Email) { e.Tags = []string{"a", ""} }, "Content.Tags[1]", "is empty"},
		"tag line":         {func(e *dispatch.Email) { e.Tags = []string{"a\nb"} }, "Content.Tags[0]", "line break"},

		"template without id":     {template(dispatch.ProviderTemplate{Revision: "7"}), "Content.Template", "has no ID"},
		"template data only":      {template(dispatch.ProviderTemplate{Data: []byte("{}")}), "Content.Template", "has no ID"},
		"template not pinned":     {template(dispatch.ProviderTemplate{ID: "t"}), "Content.Template.Revision", "pin a revision or set Unpinned"},
		"template id line":        {template(dispatch.ProviderTemplate{ID: "t\n", Revision: "\x00"}), "Content.Template.ID", "line break"},
		"template revision":       {template(dispatch.ProviderTemplate{ID: "t", Revision: "\x00"}), "Content.Template.Revision", "NUL"},
		"template data":           {template(dispatch.ProviderTemplate{ID: "t", Revision: "7", Data: []byte(`{"secret":`)}), "Content.Template.Data", "not a JSON object"},
		"template data an array":  {template(dispatch.ProviderTemplate{ID: "t", Revision: "7", Data: []byte(` ["secret"]`)}), "Content.Template.Data", "not a JSON object"},
		"template data not UTF-8": {template(dispatch.ProviderTemplate{ID: "t", Revision: "7", Data: []byte("{\"a\":\"\xff\"}")}), "Content.Template.Data", "not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, email(c.bend), c.field, c.reason) })
	}
}

func TestNormalizeKeepsAGoodEmail(t *testing.T) {
	c := dispatch.Email{
		Sender: "receipts", Subject: "Rechnung „März“, =?utf-8?q?harmlos?=", HTML: "<p>Grüße</p>",
		To: []dispatch.Address{{Name: "Smith, John (c) <x>", Email: "john.smith+tag@example.com"}, {Email: "müller@exämple.com"}},
		CC: addresses(24), BCC: addresses(24), ReplyTo: addresses(10),
		Headers: []dispatch.Header{
			{Name: "List-Unsubscribe", Value: "<https://example.com/u>"}, {Name: "x-ORDER", Value: "Ü 1"}, {Name: "References", Value: "<a@b>"},
		},
		Attachments: []dispatch.Attachment{{Name: `Rechnung "März".pdf`, Type: "application/pdf", Data: []byte{0, 255}}, {Name: "l.png", Type: "image/png; x=y", ContentID: "logo@shop"}},
		Tags:        []string{"receipt"},
		Template:    dispatch.ProviderTemplate{ID: "t", Unpinned: true, Data: []byte(" {\"a\":1}")},
	}
	i := dispatch.Intent{Key: dispatch.NewKey(), Content: c}
	got, err := i.Normalize()
	require.NoError(t, err)
	assert.Equal(t, i, got)

	i.Content = dispatch.Email{To: addresses(1), Template: dispatch.ProviderTemplate{ID: "t", Revision: "7"}}
	_, err = i.Normalize()
	require.NoError(t, err, "a template is a body")
}

// B026: what counts is the size on the wire, a third more than the file.
func TestEmailIsMeasuredAsItIsSent(t *testing.T) {
	fits := func(raw int) error {
		_, err := email(func(e *dispatch.Email) {
			e.Attachments = []dispatch.Attachment{{Name: "a.zip", Type: "application/zip", Data: make([]byte, raw)}}
		}).Normalize()
		return err
	}
	require.NoError(t, fits(18<<20))
	err := fits(19_400_000) // below MaxEmail raw and in base64, above it with the line ends
	require.ErrorContains(t, err, "as it is sent")
	var f *dispatch.FieldError
	require.ErrorAs(t, err, &f)
	assert.Equal(t, "Content", f.Field)

	refused(t, email(func(e *dispatch.Email) { e.Text = strings.Repeat("a", dispatch.MaxEmail) }), "Content", "bytes as it is sent")
}
