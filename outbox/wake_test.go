package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Wake never blocks, rings each worker once, and tells the lanes that were
// enqueued to.
func TestWake(t *testing.T) {
	t.Parallel()
	var w wake
	w.ring() // nobody listens
	w.hint(anyLane)
	require.Empty(t, w.lanes(), "nobody to tell")
	a, leave := w.join()
	b, stay := w.join()
	defer stay()
	for range 3 {
		w.hint(anyLane)
		w.ring()
	}
	require.Equal(t, []string{"sms/2/"}, w.lanes())
	<-a
	<-b
	require.Empty(t, a)
	require.Empty(t, b)
	leave()
	w.ring()
	require.Empty(t, a)
	require.Len(t, b, 1)
}
