package httpapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

func TestSmoke(t *testing.T) {
	v, err := providertest.NewVendor(providertest.Options{Dedupe: time.Hour, Fault: providertest.Script(providertest.Fault{Wire: providertest.Drop})})
	require.NoError(t, err)
	defer v.Close()
	p, err := httpapi.New(httpapi.Config{Name: "acme", BaseURL: v.URL, Window: time.Hour, LookupPath: "/v1/messages/{key}"})
	require.NoError(t, err)
	defer p.Close()
	key := dispatch.NewKey()
	a, err := dispatch.Do(context.Background(), p, dispatch.Route{Name: "sms", Providers: []string{"acme"}}, dispatch.Intent{
		Key: key, Content: dispatch.SMS{To: "+15555550123", Body: "hi"},
	})
	require.NoError(t, err)
	require.Equal(t, "msg-000001", a.ID)
	require.Equal(t, 1, v.Deliveries(key.String()))
	require.Len(t, v.Calls(key.String()), 2)
	f, err := p.Lookup(context.Background(), dispatch.Query{Key: key})
	require.NoError(t, err)
	require.Equal(t, dispatch.Present, f.Presence)
}
