package main

import (
	"context"
)

const soakRate = 60.0

type sample struct{}

func (c *conductor) watch(ctx context.Context) []sample { <-ctx.Done(); return nil }

func tellSamples([]sample) []error { return nil }
