package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
)

const (
	nonceSize = 24 // half of it derives the key, half is GCM's nonce
	tagSize   = 16
)

// extended is XAES-256-GCM (c2sp.org/XAES-256-GCM). GCM's own random nonce of
// 96 bits is good for 2^32 messages under one key, which a busy outbox has
// sealed within days.
type extended struct {
	block cipher.Block
	k1    [aes.BlockSize]byte // CMAC's subkey (NIST SP 800-38B, section 6.1)
}

func newExtended(key []byte) (*extended, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	x := &extended{block: block}
	block.Encrypt(x.k1[:], x.k1[:])
	carry := byte(0)
	for i := len(x.k1) - 1; i >= 0; i-- {
		x.k1[i], carry = x.k1[i]<<1|carry, x.k1[i]>>7
	}
	x.k1[len(x.k1)-1] ^= carry * 0x87
	return x, nil
}

// derive returns AES-256-GCM under the key that belongs to the nonce's first
// half.
func (x *extended) derive(nonce []byte) (cipher.AEAD, error) {
	var key [2 * aes.BlockSize]byte
	for i, half := range [][]byte{key[:aes.BlockSize], key[aes.BlockSize:]} {
		copy(half, []byte{0, byte(i + 1), 'X', 0})
		copy(half[4:], nonce[:nonceSize/2])
		subtle.XORBytes(half, half, x.k1[:])
		x.block.Encrypt(half, half)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
