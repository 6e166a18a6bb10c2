package dispatch

import "log/slog"

// Channel is the kind of a message.
type Channel int8

// The channels. Their numbers are stored.
const (
	ChannelSMS   Channel = 1
	ChannelEmail Channel = 2
)

func (c Channel) String() string {
	switch c {
	case ChannelSMS:
		return "sms"
	case ChannelEmail:
		return "email"
	}
	return "unknown channel"
}

// Content is what a message says and to whom: an [SMS] or an [Email]. It is
// frozen when it is enqueued; a correction is a new message with a new key.
type Content interface {
	// Channel tells the kind of the message.
	Channel() Channel
	// LogValue keeps recipients and text out of logs.
	LogValue() slog.Value

	sealed()
}

// SMS is a text message to one phone.
type SMS struct {
	// To is the recipient's number in E.164 form, "+15555550123". Spaces,
	// dashes, brackets and invisible format characters are removed.
	To string
	// Sender is the logical name of the sender ("otp"), which the route maps
	// to each provider's registered sender. Empty means each provider's own
	// default.
	Sender string
	// Body is the text, in valid UTF-8 without NUL, at most MaxSMSBody UTF-16
	// units long.
	Body string
}

// Channel returns ChannelSMS.
func (SMS) Channel() Channel { return ChannelSMS }

// LogValue shows the sender, the length and the parts that vendors bill.
func (s SMS) LogValue() slog.Value {
	return slog.GroupValue(slog.String("channel", "sms"), slog.String("sender", s.Sender), slog.Int("bytes", len(s.Body)),
		slog.Int("parts", Segments(s.Body).Parts))
}

func (SMS) sealed() {}

// Email is one mail. All its recipients make one message: it is sent once,
// never split, never repeated for a part of them.
type Email struct {
	// Sender is the logical name of the From address ("receipts"), which the
	// route maps to each provider's registered sender, for example
	// "Shop <no-reply@shop.example>". Empty means each provider's own default.
	Sender string
	// To, CC and BCC are the recipients; at least one is needed.
	To, CC, BCC []Address
	// ReplyTo is where answers go; empty means to the sender.
	ReplyTo []Address
	// Subject is one line.
	Subject string
	// Text and HTML are the bodies; at least one is needed unless Template is
	// set.
	Text, HTML string
	// Headers are further header fields, in order. Fields that the library or
	// the provider owns (From, To, Message-ID, ...) are refused.
	Headers []Header
	// Attachments are files and inline images, in order.
	Attachments []Attachment
	// Tags label the message at the provider.
	Tags []string
	// Template is a template that the provider renders; zero means none.
	Template ProviderTemplate
}

// Channel returns ChannelEmail.
func (Email) Channel() Channel { return ChannelEmail }

// LogValue shows counts and sizes only.
func (e Email) LogValue() slog.Value {
	return slog.GroupValue(slog.String("channel", "email"), slog.String("sender", e.Sender),
		slog.Int("recipients", len(e.To)+len(e.CC)+len(e.BCC)),
		slog.Int("bytes", len(e.Text)+len(e.HTML)), slog.Int("attachments", len(e.Attachments)))
}

func (Email) sealed() {}

// Address is a mail address and, optionally, the name shown with it. The two
// are never parsed out of one string.
type Address struct{ Name, Email string }

// Header is one header field of a mail.
type Header struct{ Name, Value string }

// Attachment is a file in a mail.
type Attachment struct {
	// Name is the file's name, as the reader sees it.
	Name string
	// Type is the media type, "application/pdf".
	Type string
	// ContentID marks an inline part that the HTML names as "cid:..."; empty
	// means a plain attachment.
	ContentID string
	// Data is the file.
	Data []byte
}

// ProviderTemplate names a template that the provider renders. Its revision
// pins the content: without one an editor could change a message that waits
// for its retry, so an unpinned template must be asked for.
type ProviderTemplate struct {
	// ID is the provider's id of the template; empty means no template.
	ID string
	// Revision is the immutable revision to render.
	Revision string
	// Unpinned accepts a template without a revision. It is recorded.
	Unpinned bool
	// Data are the template's values as a JSON object; empty means none.
	Data []byte
}
