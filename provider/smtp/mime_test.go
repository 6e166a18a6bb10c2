package smtp_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-message"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/smtp"
)

// stored is when the mails of these tests were enqueued.
var stored = time.Date(2026, 11, 30, 9, 15, 0, 123456000, time.FixedZone("", 3600))

// sent sends a mail and returns what the server got: envelope and mail.
func sent(t *testing.T, e dispatch.Envelope) (verbs []string, data []byte) {
	t.Helper()
	s := newScript(t, func(line string) string {
		if strings.HasPrefix(line, "EHLO") {
			return "250-fake.example\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n"
		}
		return ""
	})
	if e.Created.IsZero() {
		e.Created = stored
	}
	_, err := open(t, plain(s.Addr)).Send(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, 1, s.taken())
	s.mu.Lock()
	defer s.mu.Unlock()
	wire := s.mails[0]
	fit(t, wire)
	return s.lines, bytes.ReplaceAll(wire, []byte("\r\n.."), []byte("\r\n.")) // no mail begins with a dot
}

// fit checks what every server may ask of a mail: B085.
func fit(t *testing.T, wire []byte) {
	t.Helper()
	for line := range bytes.SplitSeq(bytes.TrimSuffix(wire, []byte("\r\n")), []byte("\r\n")) {
		require.LessOrEqual(t, len(line), 998)
		require.NotContains(t, string(line), "\n")
		require.NotContains(t, string(line), "\r")
		require.NotContains(t, string(line), "\x00")
	}
}

func mailOf(change func(*dispatch.Email)) dispatch.Envelope {
	e := mailtest.Golden()
	m := mailtest.Mail()
	change(&m)
	e.Content = m
	return e
}

// The mails, byte for byte.
func TestGoldenMails(t *testing.T) {
	files := mailtest.Full().Attachments
	for name, e := range map[string]dispatch.Envelope{
		"full.eml": mailtest.Golden(),
		"text.eml": mailOf(func(*dispatch.Email) {}),
		"html.eml": mailOf(func(m *dispatch.Email) { m.Text, m.HTML = "", "<p>Grüße</p>" }),
		"both.eml": mailOf(func(m *dispatch.Email) { m.HTML = "<p>hello</p>" }),
		"file.eml": mailOf(func(m *dispatch.Email) { m.Attachments = files[:1] }),
		"image.eml": mailOf(func(m *dispatch.Email) {
			m.Text, m.HTML, m.Attachments = "", `<img src="cid:logo">`, files[1:]
		}),
		"image_without_html.eml": mailOf(func(m *dispatch.Email) { m.Attachments = files[1:] }),
		"list.eml": mailOf(func(m *dispatch.Email) {
			m.Headers = []dispatch.Header{
				{Name: "List-Unsubscribe", Value: "<mailto:leave@shop.example?subject=leave>, <https://shop.example/leave/" + strings.Repeat("0123456789", 20) + ">"},
				{Name: "List-Unsubscribe-Post", Value: "List-Unsubscribe=One-Click"},
				{Name: "References", Value: strings.TrimSpace(strings.Repeat("<01920000-0000-7000-8000-000000000001@shop.example> ", 10))},
			}
		}),
		"letters.eml": mailOf(func(m *dispatch.Email) {
			m.To = []dispatch.Address{{Name: "王小明", Email: "ming@例子.广告"}, {Name: `Ada "the" O'Brien \ Co.`, Email: "ada@example.com"}}
			m.Subject = "验证码 482901 " + strings.Repeat("长", 60)
			m.Text = "您的验证码是 482901。\n请勿告诉他人。"
		}),
		"utf8.eml": mailOf(func(m *dispatch.Email) {
			m.To = []dispatch.Address{{Name: "Jürgen", Email: "jürgen@bücher.example"}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			_, data := sent(t, e)
			mailtest.SameAsGolden(t, name, data)
		})
	}
}

// Two providers, two processes, two times: the same bytes.
func TestSameBytes(t *testing.T) {
	e := mailtest.Golden()
	_, a := sent(t, e)
	e.Attempt, e.Metadata, e.TraceParent, e.Deadline = 7, nil, "x", time.Now()
	e.Created = stored.In(time.UTC)
	_, b := sent(t, e)
	require.Equal(t, string(a), string(b))
}

// A key with a time in it dates a mail whose envelope says nothing, and one
// without leaves the date to the server.
func TestDate(t *testing.T) {
	s := newScript(t, nil)
	p := open(t, plain(s.Addr))
	names, err := dispatch.NewNamespace("shop")
	require.NoError(t, err)
	for _, key := range []dispatch.Key{mailtest.Key(), names.Key("order-1")} {
		e := mailtest.Envelope()
		e.Key = key
		_, err = p.Send(t.Context(), e)
		require.NoError(t, err)
	}
	require.Contains(t, string(s.all()[0]), "Date: Tue, 17 Sep 2024 12:40:52 +0000\r\n")
	require.NotContains(t, string(s.all()[1]), "Date:")
}

// leaf is a part without parts, decoded.
type leaf struct {
	within, kind, charset, shown, name, id string

	data string
}

// rfc822 reads a mail with the standard library.
func rfc822(t *testing.T, data []byte) (netmail.Header, []leaf) {
	t.Helper()
	m, err := netmail.ReadMessage(bytes.NewReader(data))
	require.NoError(t, err)
	return m.Header, leaves(t, map[string][]string(m.Header), m.Body)
}

func leaves(t *testing.T, h map[string][]string, body io.Reader) (out []leaf) {
	t.Helper()
	first := func(name string) string { return strings.Join(h[name], "") }
	kind, params, err := mime.ParseMediaType(first("Content-Type"))
	require.NoError(t, err)
	if strings.HasPrefix(kind, "multipart/") {
		r := multipart.NewReader(body, params["boundary"])
		for {
			p, err := r.NextRawPart()
			if err == io.EOF {
				return out
			}
			require.NoError(t, err)
			for _, l := range leaves(t, p.Header, p) {
				l.within = strings.TrimPrefix(kind, "multipart/") + " " + l.within
				out = append(out, l)
			}
		}
	}
	switch first("Content-Transfer-Encoding") {
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	default:
		t.Fatal("other encoding")
	}
	b, err := io.ReadAll(body)
	require.NoError(t, err)
	shown, names, err := mime.ParseMediaType(first("Content-Disposition"))
	if h["Content-Disposition"] != nil {
		require.NoError(t, err)
	}
	return []leaf{{kind: kind, charset: params["charset"], shown: shown, name: names["filename"], id: first("Content-Id"), data: string(b)}}
}

// crossread reads the same with go-message, and returns the leaves' data.
func crossread(t *testing.T, data []byte) (out []string) {
	t.Helper()
	e, err := message.Read(bytes.NewReader(data))
	require.NoError(t, err)
	require.NoError(t, e.Walk(func(_ []int, e *message.Entity, err error) error {
		require.NoError(t, err)
		if kind, _, err := e.Header.ContentType(); err != nil || strings.HasPrefix(kind, "multipart/") {
			return err
		}
		b, err := io.ReadAll(e.Body)
		out = append(out, string(b))
		return err
	}))
	return out
}

// awkward is a mail with everything that breaks naive code: names, files, an
// inline image, and lines of 2,000 characters and of dots: B082, B085, B086,
// B089, B090.
func awkward() (dispatch.Envelope, dispatch.Email) {
	e := mailtest.Golden()
	m := mailtest.Full()
	m.Subject = "Ihre Bestellung  №42 =?utf-8?q?x?= – " + strings.Repeat("sehr ", 40)
	m.Text = strings.Repeat("0123456789", 200) + "\na\n.\nQUIT\n..b\nFrom me \t \n" + strings.Repeat("x", 73) + "é.com\n.\n"
	m.HTML = "<p>" + strings.Repeat("ä", 2000) + strings.Repeat("b", 6000) + "</p>\r\n<img src=\"cid:logo\">\r\n.\r\n"
	everything := make([]byte, 256*5)
	for i := range everything {
		everything[i] = byte(i)
	}
	m.Attachments[0].Data = everything
	m.Attachments = append(m.Attachments,
		dispatch.Attachment{Name: "mail.eml", Type: "message/rfc822", Data: []byte("Subject: x\n\nbody")},
		dispatch.Attachment{Name: "старый.csv", Type: "text/csv; charset=koi8-r; header=present", Data: []byte{0xd0, 0xd2}},
		dispatch.Attachment{Name: strings.Repeat("ü", 95) + ".pdf", Type: "application/pdf"})
	e.Content = m
	return e, m
}

// lines is a text as mail carries it.
func lines(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

func check(t *testing.T, m dispatch.Email, h netmail.Header, got []leaf) {
	t.Helper()
	words := new(mime.WordDecoder)
	subject, err := words.DecodeHeader(h.Get("Subject"))
	require.NoError(t, err)
	require.Equal(t, m.Subject, subject)
	for name, want := range map[string][]dispatch.Address{"To": m.To, "Cc": m.CC, "Reply-To": m.ReplyTo, "From": {{Name: "Shop", Email: "no-reply@shop.example"}}} {
		list, err := h.AddressList(name)
		require.NoError(t, err, name)
		require.Len(t, list, len(want))
		for n, a := range list {
			require.Equal(t, want[n], dispatch.Address{Name: a.Name, Email: a.Address})
		}
	}
	require.Empty(t, h["Bcc"])
	date, err := h.Date()
	require.NoError(t, err)
	require.True(t, date.Equal(stored.Truncate(time.Second)))
	require.Equal(t, "<"+mailtest.Key().String()+"@shop.example>", h.Get("Message-Id"))
	require.Equal(t, "<https://shop.example/u/1>", h.Get("List-Unsubscribe"))
	data := func(n int) string { return string(m.Attachments[n].Data) }
	want := []leaf{
		{"mixed alternative ", "text/plain", "utf-8", "", "", "", lines(m.Text)},
		{"mixed alternative related ", "text/html", "utf-8", "", "", "", lines(m.HTML)},
		{"mixed alternative related ", "image/png", "", "inline", "logo.png", "<logo>", data(1)},
		{"mixed ", "application/pdf", "", "attachment", `Rechnung "März".pdf`, "", data(0)},
		{"mixed ", "application/octet-stream", "", "attachment", "mail.eml", "", data(2)},
		{"mixed ", "text/csv", "koi8-r", "attachment", "старый.csv", "", data(3)},
		{"mixed ", "application/pdf", "", "attachment", m.Attachments[4].Name, "", ""},
	}
	require.Len(t, got, len(want))
	for n := range want {
		require.True(t, want[n].data == got[n].data, "part %d has other content", n)
		want[n].data, got[n].data = "", ""
		require.Equal(t, want[n], got[n])
	}
}

// A mail with everything is read back as it was by two parsers that know
// nothing of this package.
func TestReadBack(t *testing.T) {
	e, m := awkward()
	verbs, data := sent(t, e)
	require.Contains(t, verbs, "RCPT TO:<secret@example.com>")
	require.False(t, bytes.Contains(data, []byte("secret@")))
	h, got := rfc822(t, data)
	// go-message reads a known charset as UTF-8 and refuses others.
	other := crossread(t, bytes.ReplaceAll(data, []byte("koi8-r"), []byte("us-ascii")))
	require.Len(t, other, len(got))
	for n := range got {
		require.True(t, got[n].data == other[n], "part %d", n)
	}
	check(t, m, h, got)
}

// A lone carriage return, and a text that is not ASCII for the most part.
func TestTexts(t *testing.T) {
	for _, text := range []string{"a\rb\r\nc\nd", "\r", "您的验证码是 482901。\n", "a", "a\n", "\n\n.\n", "=\r\n=20", " a ", "\t", strings.Repeat("é", 3000)} {
		_, data := sent(t, mailOf(func(m *dispatch.Email) { m.Text, m.HTML = "x"+text, "<p>"+text+"</p>" }))
		_, got := rfc822(t, data)
		want := lines("x" + text)
		require.Equal(t, want, got[0].data)
		require.Equal(t, lines("<p>"+text+"</p>"), got[1].data)
		_, data = sent(t, mailOf(func(m *dispatch.Email) { m.Text = "x" + text })) // the mail itself ends in a line's end
		_, got = rfc822(t, data)
		require.Equal(t, strings.TrimSuffix(want, "\r\n"), strings.TrimSuffix(got[0].data, "\r\n"))
	}
}

// Subjects that a reader must see as they are.
func TestSubjects(t *testing.T) {
	for _, subject := range []string{
		"", "a", "=?utf-8?q?not_a_word?=", "a  b", " a ", strings.Repeat("a", 900), strings.Repeat("a ", 450)[:899], strings.Repeat("ü", 450), strings.Repeat(" ", 300) + "x", "😀",
	} {
		_, data := sent(t, mailOf(func(m *dispatch.Email) { m.Subject = subject }))
		h, _ := rfc822(t, data)
		got, err := new(mime.WordDecoder).DecodeHeader(h.Get("Subject"))
		require.NoError(t, err)
		require.Equal(t, subject, got)
	}
}

// Callers' fields, up to the longest that the root lets through.
func TestLongFields(t *testing.T) {
	name := "X-A" + strings.Repeat("a", 73)
	for _, value := range []string{"", "v", strings.Repeat("v", 900), strings.Repeat("v ", 449) + "v", strings.Repeat("ü", 450), "a" + strings.Repeat(" ", 200) + "b"} {
		_, data := sent(t, mailOf(func(m *dispatch.Email) { m.Headers = []dispatch.Header{{Name: name, Value: value}} }))
		head, _, _ := strings.Cut(string(data), "\r\n\r\n")
		for line := range strings.SplitSeq(head, "\r\n") {
			require.NotEmpty(t, strings.TrimSpace(line))
		}
		_, field, ok := strings.Cut(head, name+": ")
		require.True(t, ok)
		field, _, _ = strings.Cut(strings.ReplaceAll(field, "\r\n ", " "), "\r\n")
		got, err := new(mime.WordDecoder).DecodeHeader(field)
		require.NoError(t, err)
		require.Equal(t, value, got)
	}
}

// What can't go is refused here: B081, B082, B084.
func TestUnfit(t *testing.T) {
	s := newScript(t, nil)
	p := open(t, plain(s.Addr))
	for field, change := range map[string]func(*dispatch.Email){
		"To[0]":      func(m *dispatch.Email) { m.To[0].Email = "a@example.com>\r\nRCPT TO:<b@example.com" },
		"To[0] addr": func(m *dispatch.Email) { m.To[0].Email = "a@example.com\u202c" },
		"To[0] name": func(m *dispatch.Email) { m.To[0].Name = "a\r\nBcc: b@example.com" },
		"To[0] has":  func(m *dispatch.Email) { m.To[0].Email = "a@ä_x.example" },
		"Subject":    func(m *dispatch.Email) { m.Subject = "Hi\r\nBcc: b@example.com" },
		"Headers[0]": func(m *dispatch.Email) {
			m.Headers = []dispatch.Header{{Name: "X-A: b\r\nBcc", Value: "b@example.com"}}
		},
		"Headers[0] v": func(m *dispatch.Email) {
			m.Headers = []dispatch.Header{{Name: "List-Unsubscribe", Value: "<a>\nBcc: b@example.com"}}
		},
		"Headers[0] n": func(m *dispatch.Email) { m.Headers = []dispatch.Header{{Name: "Bcc", Value: "b@example.com"}} },
		"Attachments[0]": func(m *dispatch.Email) {
			m.Attachments = []dispatch.Attachment{{Name: "a\"\r\nX: y.pdf", Type: "a/b"}}
		},
		"Attachments[0] content": func(m *dispatch.Email) {
			m.Attachments = []dispatch.Attachment{{Name: "a", Type: "a/b", ContentID: "lögo"}}
		},
		"Template": func(m *dispatch.Email) { m.Template = mailtest.Templated("").Template },
	} {
		e, v := dispatch.Judge(p.Send(t.Context(), mailOf(change)))
		require.Equal(t, dispatch.NotSent, e.Stage, field)
		require.Equal(t, dispatch.Rejected, v.Outcome)
		require.Equal(t, dispatch.Sender, v.Scope)
		require.Contains(t, v.Reason, "Content."+field)
	}
	for name, from := range map[string]string{"missing": "", "no mail address": `"a b"@shop.example`} {
		e := mailtest.Envelope()
		e.From = from
		_, v := dispatch.Judge(p.Send(t.Context(), e))
		require.Equal(t, dispatch.Sender, v.Scope)
		require.Contains(t, v.Reason, name)
	}
	require.Zero(t, s.connections())
	require.NoError(t, smtp.Check(mailtest.Full()))
	var field *dispatch.FieldError
	require.ErrorAs(t, smtp.Check(mailtest.Templated("")), &field)
}

// Whatever an intent may hold: mail of SMTP's lines, the same each time, that
// the standard library reads back.
func FuzzMail(f *testing.F) {
	f.Add("a\r\n.\r\nb", "subject", "name", "file.pdf", "value", "text/plain")
	f.Add("ü\r", "=?utf-8?q?x?=", `"\`, `a"b`, "a  b", "message/rfc822")
	f.Fuzz(func(t *testing.T, text, subject, name, file, value, kind string) {
		e := mailtest.Golden()
		m := mailtest.Full()
		m.Text, m.HTML, m.Subject, m.To[0].Name = text, text, subject, name
		m.Headers[1].Value, m.Attachments[0].Name, m.Attachments[0].Type = value, file, kind
		e.Content = m
		a, err := smtp.EncodeForTest(e)
		if _, bad := (dispatch.Intent{Key: e.Key, Content: m}).Normalize(); bad != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		fit(t, a)
		b, err := smtp.EncodeForTest(e)
		require.NoError(t, err)
		require.Equal(t, a, b)
		h, got := rfc822(t, a)
		require.Len(t, h["Subject"], 1)
		require.Empty(t, h["Bcc"])
		require.Len(t, got, 4-boolean(text == ""))
	})
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
