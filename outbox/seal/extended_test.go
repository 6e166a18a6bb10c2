package seal

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The vectors of c2sp.org/XAES-256-GCM: one for each value of the bit that
// decides how CMAC's subkey is made.
func TestVectors(t *testing.T) {
	nonce := []byte("ABCDEFGHIJKLMNOPQRSTUVWX")
	for _, v := range []struct {
		key            byte
		k1, bound, out string
	}{
		{1, "e531954aca063d5b8d9c47a47d4cc6f0", "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"},
		{3, "23810ec50edb99f374409466ed1f4b7b", "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"},
	} {
		x, err := newExtended(bytes.Repeat([]byte{v.key}, 32))
		require.NoError(t, err)
		assert.Equal(t, v.k1, hex.EncodeToString(x.k1[:]))
		aead, err := x.derive(nonce)
		require.NoError(t, err)
		assert.Equal(t, v.out, hex.EncodeToString(aead.Seal(nil, nonce[12:], []byte("XAES-256-GCM"), []byte(v.bound))))
	}
}
