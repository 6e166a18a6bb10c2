package leaktest_test

import (
	"testing"

	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
