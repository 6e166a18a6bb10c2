package main

import (
	"os"
	"runtime/debug"
	"runtime/pprof"
)

// startProfile profiles this library's worker where the flag asks for it.
func (b *bench) startProfile(p peer) (stop func(), err error) {
	if b.profile == "" || b.index(p) != 0 {
		return func() {}, nil
	}
	f, err := os.Create(b.profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// riverVersion is what go.mod says.
func riverVersion() string {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, d := range info.Deps {
			if d.Path == "github.com/riverqueue/river" {
				return d.Version
			}
		}
	}
	return "of unknown version"
}
