package outboxtest

import "time"

// Within bounds Work for a test that can't wait half a minute.
func (b *Box) Within(d time.Duration) *Box {
	b.limit = d
	return b
}
