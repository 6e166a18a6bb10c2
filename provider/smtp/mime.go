package smtp

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/textproto"
	"strings"
	"unicode/utf8"

	"github.com/seed-8098fbb7/dispatch"
)

// part is an entity of MIME: a body that is encoded already, or several parts.
type part struct {
	header   textproto.MIMEHeader
	body     []byte
	boundary string
	parts    []part
}

// writer makes the parts of one mail. Its boundaries are derived from the key,
// so that the same mail gives the same bytes. None can stand in a part: "=_"
// is neither quoted-printable nor base64.
type writer struct {
	key dispatch.Key
	n   byte
}

// content is the mail's body. An inline image stands beside the HTML that
// shows it, every other file behind the text.
//
//	mixed( alternative( text, related( html, images )), files )
func (w *writer) content(m dispatch.Email) part {
	var images, files []part
	for _, a := range m.Attachments {
		if f := file(a); a.ContentID != "" && m.HTML != "" {
			images = append(images, f)
		} else {
			files = append(files, f)
		}
	}
	var bodies []part
	if m.Text != "" || m.HTML == "" {
		bodies = append(bodies, readable("text/plain", m.Text))
	}
	if m.HTML != "" {
		html := append([]part{readable("text/html", m.HTML)}, images...)
		bodies = append(bodies, w.several("related", `; type="text/html"`, html))
	}
	return w.several("mixed", "", append([]part{w.several("alternative", "", bodies)}, files...))
}

// several is parts as one, or the one that there is.
func (w *writer) several(kind, params string, parts []part) part {
	if len(parts) == 1 {
		return parts[0]
	}
	w.n++
	sum := sha256.Sum256(append(append([]byte("dispatch-smtp-boundary"), w.key[:]...), w.n))
	boundary := "=_" + hex.EncodeToString(sum[:16])
	return part{
		header:   header("multipart/"+kind+`; boundary="`+boundary+`"`+params, ""),
		boundary: boundary, parts: parts,
	}
}

func header(kind, coding string) textproto.MIMEHeader {
	h := textproto.MIMEHeader{"Content-Type": {fold("Content-Type", kind)}}
	if coding != "" {
		h["Content-Transfer-Encoding"] = []string{coding}
	}
	return h
}

// readable is a text in UTF-8 with the line ends of RFC 2046 section 4.1.1. It
// is quoted-printable, which an ASCII reader can read, or base64 where that
// would be larger by far or would lose a lone carriage return.
func readable(kind, s string) part {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	lone, letters := strings.Contains(s, "\r"), 0
	for _, c := range []byte(s) {
		if c >= utf8.RuneSelf {
			letters++
		}
	}
	s = strings.ReplaceAll(s, "\n", "\r\n")
	kind += "; charset=utf-8"
	if lone || letters > len(s)/4 {
		return part{header: header(kind, "base64"), body: wrapped([]byte(s))}
	}
	var b bytes.Buffer
	q := quotedprintable.NewWriter(&b)
	_, _ = io.WriteString(q, s) // a buffer takes all
	_ = q.Close()               // see above
	return part{header: header(kind, "quoted-printable"), body: b.Bytes()}
}

func file(a dispatch.Attachment) part {
	kind, params, err := mime.ParseMediaType(a.Type)
	// Several parts, or a mail, must not be in base64 (RFC 2045 section 6.4).
	if err != nil || strings.HasPrefix(kind, "multipart/") || strings.HasPrefix(kind, "message/") {
		kind, params = "application/octet-stream", nil
	}
	if kind = mime.FormatMediaType(kind, params); kind == "" {
		kind = "application/octet-stream"
	}
	p := part{header: header(kind, "base64"), body: wrapped(a.Data)}
	shown := "attachment"
	if a.ContentID != "" {
		shown = "inline"
		p.header["Content-Id"] = []string{"<" + a.ContentID + ">"}
	}
	p.header["Content-Disposition"] = []string{fold("Content-Disposition", disposition(shown, a.Name))}
	return p
}

// wrapped is base64 in lines of 76 characters.
func wrapped(data []byte) []byte {
	const line = 57
	b := make([]byte, 0, (len(data)/line+1)*78)
	for len(data) > 0 {
		n := min(line, len(data))
		b = append(base64.StdEncoding.AppendEncode(b, data[:n]), "\r\n"...)
		data = data[n:]
	}
	return b
}

// write writes the body. All writes go to a buffer, which takes all.
func (p part) write(w io.Writer) error {
	if p.parts == nil {
		_, err := w.Write(p.body)
		return err
	}
	mw := multipart.NewWriter(w)
	if err := mw.SetBoundary(p.boundary); err != nil {
		return err
	}
	for _, child := range p.parts {
		cw, err := mw.CreatePart(child.header)
		if err != nil {
			return err
		}
		if err := child.write(cw); err != nil {
			return err
		}
	}
	return mw.Close()
}
