// Package seal encrypts messages at rest with keys that the application holds:
// a [Keyring] is what outbox.Config.Seal takes. It uses the standard library
// only, keeps all keys in memory and asks nobody.
//
// To rotate, give every process the new key behind the current one, then put it
// first, and drop the old one once no message needs it any more: what waits is
// opened with the key it was sealed under, and a repeated enqueue is compared
// under the key of the first.
package seal

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/seed-8098fbb7/dispatch"
)

// Errors of a keyring.
var (
	// ErrNoKey: the keyring has no key with this id.
	ErrNoKey = errors.New("no such key")
	// ErrOpen: the key is another one than the bytes were sealed under, or the
	// bytes were changed, or belong to another message.
	ErrOpen = errors.New("wrong key, or changed bytes")
)

// Key is a secret and its name.
type Key struct {
	// ID is stored in the clear beside what the key seals: 1 to 40 characters
	// of a-z, 0-9, "-" and "_". An id never stands for another secret.
	ID string
	// Secret is 32 random bytes, from crypto/rand or a key management service.
	Secret []byte
}

// Format prints the id, whatever the verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.ID) }

// LogValue keeps the secret out of logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.ID) }

// Keyring seals with its first key and opens with all. It doesn't change, and
// is safe for concurrent use.
//
// Content is sealed with XAES-256-GCM (c2sp.org/XAES-256-GCM): AES-256-GCM
// under a key derived for each message from 192 random bits, so that one key
// is good for 2^80 messages. Hashes are HMAC-SHA256 under a key of their own.
type Keyring struct {
	ids  []string
	keys map[string]*pair
}

// pair is what one secret is split into.
type pair struct {
	seal *extended
	hash []byte
}

// NewKeyring returns a keyring. Two keys with one id, or a secret of another
// length, are an error, which never quotes a secret.
func NewKeyring(current Key, old ...Key) (*Keyring, error) {
	r := &Keyring{keys: map[string]*pair{}}
	for _, k := range append([]Key{current}, old...) {
		if err := dispatch.ValidName(k.ID); err != nil {
			return nil, fmt.Errorf("seal: key id %w", err)
		}
		if len(k.Secret) != sha256.Size {
			return nil, fmt.Errorf("seal: key %q has %d bytes, want 32", k.ID, len(k.Secret))
		}
		if r.keys[k.ID] != nil {
			return nil, fmt.Errorf("seal: key %q stands twice", k.ID)
		}
		p, err := split(k.Secret)
		if err != nil {
			return nil, fmt.Errorf("seal: key %q: %w", k.ID, err)
		}
		r.ids, r.keys[k.ID] = append(r.ids, k.ID), p
	}
	return r, nil
}

func split(secret []byte) (*pair, error) {
	hash, err := hkdf.Key(sha256.New, secret, nil, "dispatch hash 1", sha256.Size)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "dispatch seal 1", sha256.Size)
	if err != nil {
		return nil, err
	}
	x, err := newExtended(key)
	return &pair{seal: x, hash: hash}, err
}

// Keys returns the ids of the keys, the current one first. The caller must not
// change the slice.
func (r *Keyring) Keys() []string { return r.ids }

// Seal encrypts plain under a key and binds it to bound, without which it
// doesn't open. Two calls never return the same bytes. The error is ErrNoKey.
func (r *Keyring) Seal(key string, plain, bound []byte) ([]byte, error) {
	p, ok := r.keys[key]
	if !ok {
		return nil, ErrNoKey
	}
	out := make([]byte, nonceSize, nonceSize+len(plain)+tagSize)
	_, _ = rand.Read(out) // never fails
	aead, err := p.seal.derive(out)
	if err != nil {
		return nil, err
	}
	return aead.Seal(out, out[nonceSize/2:nonceSize], plain, bound), nil
}

// Open returns what was sealed under the key and bound to the same bytes. The
// error is ErrNoKey or ErrOpen.
func (r *Keyring) Open(key string, sealed, bound []byte) ([]byte, error) {
	p, ok := r.keys[key]
	if !ok {
		return nil, ErrNoKey
	}
	if len(sealed) < nonceSize+tagSize {
		return nil, ErrOpen
	}
	aead, err := p.seal.derive(sealed[:nonceSize])
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, sealed[nonceSize/2:nonceSize], sealed[nonceSize:], bound)
	if err != nil {
		return nil, ErrOpen
	}
	return plain, nil
}

// Sum is the HMAC-SHA256 of data under a key. The error is ErrNoKey.
func (r *Keyring) Sum(key string, data []byte) (sum [32]byte, err error) {
	p, ok := r.keys[key]
	if !ok {
		return sum, ErrNoKey
	}
	h := hmac.New(sha256.New, p.hash)
	h.Write(data)
	h.Sum(sum[:0])
	return sum, nil
}
