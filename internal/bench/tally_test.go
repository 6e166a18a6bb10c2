package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextCarriesItsNumber(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 12_345_678} {
		require.Len(t, text(n), payload)
		got, err := number(text(n))
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	_, err := number("short")
	require.Error(t, err)
}

func TestTallyWantsEveryMessageOnce(t *testing.T) {
	t.Parallel()
	a := newTally(2, 0)
	_, err := a.hit(text(1))
	require.NoError(t, err)
	require.ErrorContains(t, a.check(), "1 were not worked")
	_, err = a.hit(text(1))
	require.ErrorContains(t, err, "twice")
	require.ErrorContains(t, a.check(), "1 more than once")
	_, err = a.hit(text(2))
	require.ErrorContains(t, err, "never enqueued")

	b := newTally(2, 0)
	for n := range 2 {
		got, err := b.hit(text(n))
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	<-b.done
	require.NoError(t, b.check())
}

func TestVendorCountsKeys(t *testing.T) {
	t.Parallel()
	v, err := newVendor(t.Context(), 0)
	require.NoError(t, err)
	post, closeIdle := v.client(2)
	require.NoError(t, post(t.Context(), "a", text(1)))
	require.NoError(t, post(t.Context(), "b", text(2)))
	require.NoError(t, v.check(2))
	require.ErrorContains(t, v.check(3), "2 keys")
	require.NoError(t, post(context.Background(), "a", text(1)))
	require.ErrorContains(t, v.check(2), "2 times")
	require.Error(t, post(t.Context(), "c", "short"), "the vendor refuses what is no message")
	closeIdle()
	require.NoError(t, v.close())
}
