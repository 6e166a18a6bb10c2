package outbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
	"github.com/seed-8098fbb7/dispatch/outbox/seal"
)

// Sealed content belongs to its row: two that somebody swapped, or whose
// digest was changed, are not sent.
func TestSwappedRowsDoNotOpen(t *testing.T) {
	t.Parallel()
	_, pool, schema := newBox(t)
	box := sealedBox(t, pool, schema, ring(t, "k1"))
	one, two, bent := sms("one"), sms("two"), sms("bent")
	enqueue(t, box, one, two, bent)
	_, err := pool.Exec(t.Context(), "alter table "+schema+".message disable trigger message_frozen")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "update "+schema+".message m set content = o.content, digest = o.digest from "+schema+".message o where m.id in ($1, $2) and o.id in ($1, $2) and m.id <> o.id", one.Key.String(), two.Key.String())
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "update "+schema+".message set digest = sha256('x') where id = $1", bent.Key.String())
	require.NoError(t, err)
	p := &outboxtest.Provider{}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	for _, i := range []dispatch.Intent{one, two, bent} {
		waits(t, box, pool, schema, i.Key, `waits for key "k1"`)
	}
	require.Empty(t, p.Sends())
}

// brokenSealer is one whose parts can fail.
type brokenSealer struct {
	*seal.Keyring
	keys      []string
	noSeal    error
	noSum     error
	sumsUntil int
}

func (b *brokenSealer) Keys() []string { return b.keys }

func (b *brokenSealer) Seal(key string, plain, bound []byte) ([]byte, error) {
	if b.noSeal != nil {
		return nil, b.noSeal
	}
	return b.Keyring.Seal(key, plain, bound)
}

func (b *brokenSealer) Sum(key string, data []byte) ([32]byte, error) {
	if b.sumsUntil--; b.noSum != nil && b.sumsUntil < 0 {
		return [32]byte{}, b.noSum
	}
	return b.Keyring.Sum(key, data)
}

// A sealer that fails refuses the enqueue, and nothing is written in the clear.
func TestBrokenSealer(t *testing.T) {
	t.Parallel()
	_, pool, schema := newBox(t)
	broken := errors.New("sealer is broken")
	for want, s := range map[string]*brokenSealer{
		"no key to seal with":             {},
		"key id has a character":          {keys: []string{"K 1"}},
		"no such key":                     {keys: []string{"k9"}},
		"seal: sealer is broken":          {keys: []string{"k1"}, noSeal: broken},
		"outbox: seal: sealer is broken":  {keys: []string{"k1"}, noSum: broken},
		"outbox: seal: sealer is broken ": {keys: []string{"k1"}, noSum: broken, sumsUntil: 1},
	} {
		s.Keyring = ring(t, "k1")
		box := sealedBox(t, pool, schema, s)
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := box.Enqueue(t.Context(), tx, sms("hello"))
			require.ErrorContains(t, err, strings.TrimSpace(want))
			_, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{sms("hello")})
			require.ErrorContains(t, err, strings.TrimSpace(want))
			var batch pgx.Batch
			require.ErrorContains(t, box.Queue(&batch, sms("hello")), strings.TrimSpace(want))
			require.Zero(t, batch.Len())
			return nil
		}))
	}
	require.Equal(t, 0, count(t, pool, schema, "message"))
}
