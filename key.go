package dispatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Key names one logical message. It is the row's id and, where a provider
// dedupes, its Idempotency-Key. Mint it once, outside whatever may be
// repeated: a key minted inside a retry is a second message. The zero Key is
// never valid and never replaced.
//
// A Key is an RFC 9562 UUID of version 4, 5 or 7.
type Key uuid.UUID

// NewKey returns a new key, a UUIDv7: keys that were minted together lie
// together in the index.
func NewKey() Key {
	// crypto/rand does not fail: it ends the process instead.
	return Key(uuid.Must(uuid.NewV7()))
}

// ParseKey reads a key in its usual 36 character form. It refuses UUIDs of
// versions that are no keys.
func ParseKey(s string) (Key, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 {
		return Key{}, errors.New("key is not a UUID of 36 characters")
	}
	k := Key(id)
	if reason := k.fault(); reason != "" {
		return Key{}, errors.New("key " + reason)
	}
	return k, nil
}

// String returns the key in its usual 36 character form.
func (k Key) String() string { return uuid.UUID(k).String() }

// IsZero reports whether k is the zero Key.
func (k Key) IsZero() bool { return k == Key{} }

// MarshalText writes the key in its usual form.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote, with the errors of ParseKey.
func (k *Key) UnmarshalText(b []byte) error {
	v, err := ParseKey(string(b))
	if err != nil {
		return err
	}
	*k = v
	return nil
}

// fault says in words why k can't be a key, "" where it can.
func (k Key) fault() string {
	if k.IsZero() {
		return "is zero: mint it with NewKey or Namespace.Key"
	}
	id := uuid.UUID(k)
	if id.Variant() != uuid.RFC4122 {
		return "is not an RFC 9562 UUID"
	}
	switch id.Version() {
	case 4, 5, 7:
		return ""
	}
	return fmt.Sprintf("is a UUID of version %d, want 4, 5 or 7", id.Version())
}

// root is the namespace that Namespaces are derived in. It must never change:
// every derived key would.
var root = uuid.MustParse("6f1d4f0e-52a5-5b3c-9d4b-6c9f2c6a7d11")

// Namespace derives keys from the names that the caller's messages already
// have ("order-123/shipped"), so that a repeated request enqueues the same
// message. The zero Namespace derives zero keys, which nothing accepts.
type Namespace struct{ id uuid.UUID }

// NewNamespace names the caller's name space, for example "shop-production".
// Two applications, or two environments of one, must not share a name: they
// would derive the same keys.
func NewNamespace(name string) (Namespace, error) {
	if blank(name) || !utf8.ValidString(name) {
		return Namespace{}, errors.New("namespace needs a name in valid UTF-8")
	}
	return Namespace{id: uuid.NewSHA1(root, []byte(name))}, nil
}

// Key derives the key (UUIDv5) of the message that the caller knows as
// natural. The same name gives the same key for ever; an empty or blank name
// gives the zero Key.
func (n Namespace) Key(natural string) Key {
	if blank(natural) || n.id == uuid.Nil {
		return Key{}
	}
	return Key(uuid.NewSHA1(n.id, []byte(natural)))
}

// Compare orders keys as the database orders their rows.
func (k Key) Compare(other Key) int {
	for i := 0; i < len(k); i += 8 {
		a, b := binary.BigEndian.Uint64(k[i:]), binary.BigEndian.Uint64(other[i:])
		if a != b {
			if a < b {
				return -1
			}
			return 1
		}
	}
	return 0
}
