package outbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/form"
)

// Sealer encrypts what a message says and to whom, for Config.Seal. Package
// outbox/seal has one that needs nothing but its keys. An implementation must
// be safe for concurrent use and fast: Seal and Sum run inside the caller's
// transaction, Open right before each send. What fetches keys from elsewhere
// does so beforehand.
type Sealer interface {
	// Keys returns the ids of all keys, the one to seal with first, each 1 to 40
	// characters of a-z, 0-9, "-" and "_". They are stored in the clear. The
	// list may change while the box is used.
	Keys() []string
	// Seal encrypts plain with authentication, under a fresh nonce, and binds it
	// to bound.
	Seal(key string, plain, bound []byte) (sealed []byte, err error)
	// Open undoes Seal. It returns an error for a key that isn't there or is
	// another one, and for bytes that were changed or bound to something else.
	Open(key string, sealed, bound []byte) (plain []byte, err error)
	// Sum is a keyed hash of data: equal for equal data, and not to be computed
	// without the key.
	Sum(key string, data []byte) (sum [32]byte, err error)
}

// ErrSealed says that a message is sealed and that no key here opens it.
var ErrSealed = engine.ErrSealed

var (
	errNoSealer = errors.New("box has no Config.Seal")
	errNoKeys   = errors.New("outbox: no key to seal with")
)

// What else is sealed, and what is hashed, each in a domain of its own.
const (
	sealedRequest = "dispatch request 1\x00"
	sumDigest     = "dispatch digest 1\x00"
	sumRecipient  = "dispatch recipient 1\x00"
)

// seal encrypts a frozen message and replaces what gives it away: the
// recipient, and the digest, since a code of six digits under a plain hash is
// guessed in a second.
func (m *message) seal(s Sealer) error {
	keys := s.Keys()
	if len(keys) == 0 {
		return errNoKeys
	}
	if err := dispatch.ValidName(keys[0]); err != nil {
		return fmt.Errorf("outbox: seal: key id %w", err)
	}
	m.sealer, m.sealKey = s, keys[0]
	digest, err := m.digestUnder(m.sealKey)
	if err != nil {
		return fmt.Errorf("outbox: seal: %w", err)
	}
	m.digest = digest
	hash, err := s.Sum(m.sealKey, []byte(sumRecipient+m.to))
	if err != nil {
		return fmt.Errorf("outbox: seal: %w", err)
	}
	m.to, m.hash = "", hash[:]
	m.form, err = s.Seal(m.sealKey, m.form, form.Binding(form.Sealed, m.key, m.digest[:]))
	if err != nil {
		return fmt.Errorf("outbox: seal: %w", err)
	}
	return nil
}

// digestUnder is the digest as it is stored under a key; none is the plain one.
func (m *message) digestUnder(key string) ([32]byte, error) {
	switch {
	case key == "":
		return m.plain, nil
	case m.sealer == nil:
		return [32]byte{}, errNoSealer
	}
	return m.sealer.Sum(key, append([]byte(sumDigest), m.plain[:]...))
}

// sameAs reports whether the stored digest is that of this message. Where the
// two were made under different keys, as after a rotation, it is made again
// under the stored one's.
func (m *message) sameAs(digest []byte, key string) error {
	own := m.digest
	if key != m.sealKey {
		var err error
		if own, err = m.digestUnder(key); err != nil {
			return fmt.Errorf("message %s can't be compared: %w under key %q: %w", m.key, ErrSealed, key, err)
		}
	}
	if string(digest) != string(own[:]) {
		return &dispatch.ConflictError{Key: m.key}
	}
	return nil
}

// sealing is the engine's Vault.
type sealing struct{ sealer Sealer }

func (v sealing) OpenForm(t *engine.Task) ([]byte, error) { return v.open(form.Sealed, t, t.Form) }

func (v sealing) OpenRequest(t *engine.Task, sealed []byte) ([]byte, error) {
	return v.open(sealedRequest, t, sealed)
}

func (v sealing) SealRequest(t *engine.Task, request []byte) ([]byte, error) {
	if v.sealer == nil {
		return nil, errNoSealer
	}
	return v.sealer.Seal(t.SealKey, request, form.Binding(sealedRequest, t.Key, t.Digest))
}

func (v sealing) open(domain string, t *engine.Task, sealed []byte) ([]byte, error) {
	if v.sealer == nil {
		return nil, errNoSealer
	}
	return v.sealer.Open(t.SealKey, sealed, form.Binding(domain, t.Key, t.Digest))
}

// sealAgain opens a message's content and seals it for another one, under the
// current key. It returns nil, nil where the content isn't sealed.
func (b *Box) sealAgain(ctx context.Context, tx pgx.Tx, old, key dispatch.Key) (content []byte, sealKey *string, err error) {
	var t engine.Task
	switch err := tx.QueryRow(ctx, b.sql.sealed, old.String()).Scan(&t.SealKey, &t.Digest, &t.Form); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	t.Key = old
	plain, err := sealing{b.seal}.OpenForm(&t)
	if err != nil {
		return nil, nil, fmt.Errorf("message %s is %w under key %q: %w", old, ErrSealed, t.SealKey, err)
	}
	keys := b.seal.Keys()
	if len(keys) == 0 {
		return nil, nil, errNoKeys
	}
	content, err = b.seal.Seal(keys[0], plain, form.Binding(form.Sealed, key, t.Digest))
	return content, &keys[0], err
}

// hidden is a recipient as a receipt keeps it: as it is, or where the box seals
// its keyed hash with the key's id.
func (b *Box) hidden(recipient string) (string, error) {
	if b.seal == nil || recipient == "" {
		return label(recipient, 320), nil
	}
	keys := b.seal.Keys()
	if len(keys) == 0 {
		return "", errNoKeys
	}
	sum, err := b.seal.Sum(keys[0], []byte(sumRecipient+recipient))
	return keys[0] + ":" + hex.EncodeToString(sum[:]), err
}
