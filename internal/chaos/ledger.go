package main

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// ledger is what stands outside of the system under test: what the
// applications were answered, what the vendors did, what was inflicted.
type ledger struct {
	plan     plan
	enqueued []enqueued
	calls    []call
	attempts []attempt
	told     []told
	faults   []struck
}

func readLedger(dir string, p plan) (l ledger, err error) {
	l.plan = p
	if l.calls, err = readJournal[call](filepath.Join(dir, "calls.jsonl")); err != nil {
		return l, err
	}
	if l.faults, err = readJournal[struck](filepath.Join(dir, "faults.jsonl")); err != nil {
		return l, err
	}
	if l.enqueued, err = readAll[enqueued](dir, "enqueued-*.jsonl"); err != nil {
		return l, err
	}
	if l.attempts, err = readAll[attempt](dir, "attempts-*.jsonl"); err != nil {
		return l, err
	}
	l.told, err = readAll[told](dir, "notices-*.jsonl")
	return l, err
}

func readAll[T any](dir, pattern string) (all []T, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		lines, err := readJournal[T](path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all = append(all, lines...)
	}
	return all, nil
}
