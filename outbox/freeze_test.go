package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox/seal"
)

// What an enqueue does besides its statement, plain and sealed.
func BenchmarkFreeze(b *testing.B) {
	ring, err := seal.NewKeyring(seal.Key{ID: "k1", Secret: make([]byte, 32)})
	require.NoError(b, err)
	for name, s := range map[string]Sealer{"plain": nil, "sealed": ring} {
		box, err := New(nil, Config{Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}, Policy: dispatch.SMSPolicy()}}, Seal: s})
		require.NoError(b, err)
		i := dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"}}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m, err := box.freeze(i)
				if err != nil || len(m.args()) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
