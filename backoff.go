package dispatch

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxFloor is the longest floor that is kept. A provider that names a longer
// wait is taken at 30 days: the message's own deadline ends it long before.
const MaxFloor = 30 * 24 * time.Hour

// Backoff is exponential back-off with full jitter.
type Backoff struct {
	// Base is the upper bound of the first wait.
	Base time.Duration
	// Cap is the upper bound of every wait without a floor.
	Cap time.Duration
}

// Bound is the upper bound of the wait after spent attempts:
// min(Cap, Base·2^(spent-1)), with spent below 1 read as 1. It never
// overflows and is at least a nanosecond.
func (b Backoff) Bound(spent int) time.Duration {
	base, limit := max(1, b.Base), max(1, b.Cap)
	for n := 1; n < spent && base < limit; n++ {
		if base > limit/2 {
			base = limit
			break
		}
		base *= 2
	}
	return min(base, limit)
}

// Wait is a random wait after spent attempts: full jitter, U(0, Bound(spent)],
// and never less than least, the floor that the provider named, also above Cap.
// A wait that the floor decides is spread over the floor plus the larger of a second
// and a tenth of it, so that a fleet doesn't come back in one instant. random
// returns a number in [0, n); math/rand/v2's Int64N fits.
func (b Backoff) Wait(spent int, least time.Duration, random func(n int64) int64) time.Duration {
	wait := time.Duration(random(int64(b.Bound(spent)))) + 1
	least = floor(least)
	if wait >= least {
		return wait
	}
	return least + time.Duration(random(int64(max(time.Second, least/10))))
}

// floor keeps a floor between none and MaxFloor.
func floor(d time.Duration) time.Duration { return min(max(0, d), MaxFloor) }

// ParseRetryAfter reads a Retry-After field (RFC 9110 section 10.2.3). Seconds
// may have decimals, are rounded up to milliseconds and saturate at MaxFloor.
// A date in one of the three layouts of RFC 9110 counts from the answer's own
// Date field where that can be read, since our clock may be wrong, and from
// now otherwise. Zero, negative, past and unreadable values are no floor: 0.
func ParseRetryAfter(value, date string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	if digits(value) {
		f, err := strconv.ParseFloat(value, 64)
		if err != nil && !math.IsInf(f, 1) { // 400 digits are +Inf with an error
			return 0
		}
		if f >= MaxFloor.Seconds() {
			return MaxFloor
		}
		return time.Duration(math.Ceil(f*1000)) * time.Millisecond
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if d, err := http.ParseTime(strings.TrimSpace(date)); err == nil {
		now = d
	}
	return floor(until.Sub(now))
}

// digits reports whether s is a decimal number without sign: "12", "1.5", and
// "1e300", which servers have been seen to send.
func digits(s string) bool {
	if s[0] < '0' || s[0] > '9' {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && c != '.' && c != 'e' && c != '+' {
			return false
		}
	}
	return true
}
