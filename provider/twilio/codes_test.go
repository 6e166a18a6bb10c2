package twilio

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// Each row is a verdict that can be stored, of a code as Twilio has them; none
// says ok, and what lasts is known to be a failure.
func TestCodes(t *testing.T) {
	require.Greater(t, len(codes), 80)
	for code, v := range codes {
		n, err := strconv.Atoi(code)
		require.NoError(t, err)
		require.True(t, n >= 10000 && n <= 69999, code)
		require.NotEqual(t, dispatch.OK, v.Outcome, code)
		require.NotEmpty(t, v.Reason, code)
		require.Less(t, len(v.Reason), 60, code)
		e := dispatch.Evidence{Stage: dispatch.Answered, Status: 400, Code: code}
		_, judged := dispatch.Judge(dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: codes.Classify(e)})
		require.Equal(t, v, judged, code)
	}
	for code := range lasting {
		require.Equal(t, dispatch.Rejected, codes[code].Outcome, code)
		require.NotEqual(t, dispatch.Moment, codes[code].Scope, code)
	}
}
