package smtp

import "github.com/seed-8098fbb7/dispatch"

// EncodeForTest encodes a mail without a server.
func EncodeForTest(e dispatch.Envelope) ([]byte, error) {
	m, err := (&Provider{}).encode(e)
	return m.data, err
}
