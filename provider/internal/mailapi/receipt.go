package mailapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
)

// Key is our key in a vendor's field, zero where it isn't one.
func Key(t loosejson.Text) dispatch.Key {
	key, err := dispatch.ParseKey(strings.ToLower(t.Word(MaxID)))
	if err != nil {
		return dispatch.Key{}
	}
	return key
}

// EventKey names an event by what it says, since vendors send the same event
// under several ids: message, kind, time as it was written, and recipient,
// which stands in it as a digest.
func EventKey(id, kind, at, recipient string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(recipient)))
	key := strings.Join([]string{id, kind, at, hex.EncodeToString(sum[:8])}, "/")
	if len(key) > 400 {
		whole := sha256.Sum256([]byte(key))
		return hex.EncodeToString(whole[:])
	}
	return key
}

// Stored reports whether a receipt can be stored: one that can't would make
// the vendor repeat its call for ever.
func Stored(r dispatch.Receipt) bool {
	return r.EventKey != "" && (!r.Key.IsZero() || r.ProviderID != "") && r.Kind >= 0 && r.Kind <= dispatch.Clicked
}

// Sane drops a time that can't be read or can't be true.
func Sane(t time.Time, err error) time.Time {
	if err != nil || t.Year() < 2000 || t.Year() > 2199 {
		return time.Time{}
	}
	return t.UTC()
}

// Unix reads seconds since the epoch, decimals taken to the millisecond; zero
// for anything else.
func Unix(t loosejson.Text) time.Time {
	f, err := strconv.ParseFloat(t.Word(MaxCode), 64)
	if err != nil || math.IsNaN(f) || f < 0 || f > 1e11 {
		return time.Time{}
	}
	return Sane(time.UnixMilli(int64(math.Round(f*1000))), nil)
}

// Address is a recipient as a receipt keeps it.
func Address(t loosejson.Text) string { return t.Word(320) }

// List reads a list of texts, one text alone, or nothing else.
func List(raw json.RawMessage) []loosejson.Text {
	var list []loosejson.Text
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	var one loosejson.Text
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return []loosejson.Text{one}
	}
	return nil
}

// Batch hands receipts on in parts that a sink takes at once.
type Batch struct{ Sink dispatch.ReceiptSink }

// Receive stores part after part and stops at the first error: the vendor
// repeats the whole, and what is stored already changes nothing.
func (b Batch) Receive(ctx context.Context, receipts []dispatch.Receipt) error {
	for part := range slices.Chunk(receipts, 1000) {
		if err := b.Sink.Receive(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// Split is sink in parts, nil for nil.
func Split(sink dispatch.ReceiptSink) dispatch.ReceiptSink {
	if sink == nil {
		return nil
	}
	return Batch{sink}
}
