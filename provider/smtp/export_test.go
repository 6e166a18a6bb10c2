package smtp

import (
	"bufio"
	"bytes"

	"github.com/seed-8098fbb7/dispatch"
)

// EncodeForTest encodes a mail without a server.
func EncodeForTest(e dispatch.Envelope) ([]byte, error) {
	m, err := (&Provider{}).encode(e)
	return m.data, err
}

// ReadReplyForTest reads an answer and returns its code.
func ReadReplyForTest(b []byte) (int, error) {
	r, err := readReply(bufio.NewReaderSize(bytes.NewReader(b), maxLine))
	return r.code, err
}
