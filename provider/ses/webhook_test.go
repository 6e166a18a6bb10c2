package ses_test

import (
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/ses"
)

// listening is a provider that reaches SNS's fake.
func listening(t *testing.T) (*ses.Provider, *sns) {
	t.Helper()
	s := newSNS(t)
	cfg := config("https://api.example")
	cfg.Exchange = s.exchange()
	return open(t, cfg), s
}

func TestWebhook(t *testing.T) {
	p, s := listening(t)
	send := mailtest.Recorded(t, "event_send.json")
	mailtest.CheckHook(t, mailtest.Hook{
		Handler: p.Webhook, Limit: 1 << 20, Call: func() *http.Request { return call(send) },
		Bare: func() *http.Request {
			v := note("2", send, nil)
			delete(v, "Signature")
			return post(v)
		},
	})
	require.Equal(t, 1, s.count(strings.TrimPrefix(certURL, "https://"+snsHost)), "the certificate is kept")
	sink := &mailtest.Sink{}
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(mailtest.Recorded(t, "event_bounce.json"))))
	all := sink.All()
	mailtest.CheckReceipts(t, all)
	require.Len(t, all, 2, "one for each recipient")
	require.NotContains(t, all[0].EventKey, "ada@example.com")
	require.NotEqual(t, all[0].EventKey, all[1].EventKey)
	all[0].EventKey = ""
	require.Equal(t, dispatch.Receipt{
		Provider: "ses", Account: "ses", Key: mailtest.Key(), ProviderID: "010201919c3f5e2a-6d2c1b0a-1111-2222-3333-444455556666-000000", Kind: dispatch.Bounced,
		Code: "Permanent/General", Permanent: true, At: time.Date(2026, 10, 14, 5, 2, 52, 574e6, time.UTC), Recipient: "ada@example.com",
	}, all[0])
}

// Both versions of the signature, and a subject that is signed where it is.
func TestSignatures(t *testing.T) {
	p, _ := listening(t)
	sink := &mailtest.Sink{}
	for _, version := range []string{"1", "2"} {
		for _, subject := range []string{"", "Amazon SES Email Event Notification\nwith a second line"} {
			v := note(version, mailtest.Recorded(t, "event_send.json"), func(v map[string]string) {
				if subject != "" {
					v["Subject"] = subject
				}
			})
			require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), post(v)))
		}
	}
	require.Len(t, sink.All(), 4)
	require.Equal(t, 1, sink.Distinct(), "a replay is the same event, under whatever MessageId")
}

func TestForged(t *testing.T) {
	p, s := listening(t)
	sink := &mailtest.Sink{}
	send := mailtest.Recorded(t, "event_send.json")
	set := func(name, value string) func(map[string]string) { return func(v map[string]string) { v[name] = value } }
	for name, v := range map[string]map[string]string{ // signed as they are
		"another's topic":   note("2", send, set("TopicArn", "arn:aws:sns:eu-west-1:123456789013:mail-events")),
		"other type":        note("2", send, set("Type", "Else")),
		"version 3":         note("3", send, nil),
		"http":              note("2", send, set("SigningCertURL", strings.Replace(certURL, "https", "http", 1))),
		"another host":      note("2", send, set("SigningCertURL", "https://sns.eu-west-1.amazonaws.com.evil.example/a.pem")),
		"host behind user":  note("2", send, set("SigningCertURL", "https://sns.eu-west-1.amazonaws.com@evil.example/a.pem")),
		"host in the path":  note("2", send, set("SigningCertURL", "https://evil.example/sns.eu-west-1.amazonaws.com/a.pem")),
		"bucket":            note("2", send, set("SigningCertURL", "https://s3.eu-west-1.amazonaws.com/evil/a.pem")),
		"port":              note("2", send, set("SigningCertURL", strings.Replace(certURL, snsHost, snsHost+":8443", 1))),
		"no file":           note("2", send, set("SigningCertURL", "https://"+snsHost+"/")),
		"query":             note("2", send, set("SigningCertURL", "https://"+snsHost+"/?a=b.pem")),
		"file isn't there":  note("2", send, set("SigningCertURL", "https://"+snsHost+"/other.pem")),
		"no url":            note("2", send, set("SigningCertURL", "\x00")),
		"no certificate at": note("2", send, set("SigningCertURL", "")),
	} {
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), post(v)), name)
	}
	for name, change := range map[string]func(map[string]string){ // changed behind the signature
		"message": set("Message", send+" "), "id": set("MessageId", "x"), "time": set("Timestamp", "2026-10-14T05:02:16.645Z"),
		"subject": set("Subject", "x"), "version": set("SignatureVersion", "1"), "no base64": set("Signature", "!"), "empty": set("Signature", ""),
		"another's key": func(v map[string]string) { sign(trusted().rootKey, v) },
		"made a subscription": func(v map[string]string) {
			v["Type"], v["Token"], v["SubscribeURL"] = "SubscriptionConfirmation", "a", "https://"+snsHost+"/?Action=ConfirmSubscription&TopicArn="+topic+"&Token=a"
		},
	} {
		v := note("2", send, nil)
		change(v)
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), post(v)), name)
	}
	raw := mailtest.Post(send)
	raw.Header.Set("x-amz-sns-rawdelivery", "true")
	require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), raw), "raw delivery is not signed")
	require.Empty(t, sink.All())
	require.Empty(t, s.tokens(t))

	cfg := config("https://api.example")
	cfg.Exchange, cfg.Topics = s.exchange(), nil
	require.Equal(t, http.StatusUnauthorized, mailtest.Status(open(t, cfg).Webhook(sink), call(send)), "no topics, no receipts")
}

// What SNS's own host serves is believed only where it is a certificate that
// names SNS, is valid now, and doesn't come from a root that nobody knows.
func TestCertificates(t *testing.T) {
	a, stranger := trusted(), newAuthority()
	key := &a.signingKey.PublicKey
	middleKey := newKey(2048)
	middle := a.issue("Test Middle", &middleKey.PublicKey, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.DNSNames = true, true, x509.KeyUsageCertSign, nil
	})
	under := &authority{root: middle, rootKey: middleKey}
	weakKey := newKey(1024)
	for name, c := range map[string]struct {
		file []byte
		want int
	}{
		"with its chain":         {file509(under.issue("sns.amazonaws.com", key, nil), middle), 200},
		"alone":                  {file509(under.issue("sns.amazonaws.com", key, nil)), 200},
		"the region's":           {file509(a.issue("sns-signing.eu-west-1.amazonaws.com", key, nil)), 200},
		"another name":           {file509(a.issue("s3.amazonaws.com", key, nil)), 401},
		"another region's":       {file509(a.issue("sns.us-east-1.amazonaws.com", key, nil)), 401},
		"a stranger's chain":     {file509(stranger.issue("sns.amazonaws.com", key, nil), stranger.root), 401},
		"signed by itself":       {file509((&authority{rootKey: a.signingKey}).issue("sns.amazonaws.com", key, nil)), 401},
		"over":                   {file509(a.issue("sns.amazonaws.com", key, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })), 401},
		"not yet":                {file509(a.issue("sns.amazonaws.com", key, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })), 401},
		"a weak key":             {file509(a.issue("sns.amazonaws.com", &weakKey.PublicKey, nil)), 401},
		"no certificate":         {[]byte("<html>"), 401},
		"nothing":                {nil, 401},
		"half of it":             {file509(a.issue("sns.amazonaws.com", key, nil))[:200], 401},
		"too many":               {file509(a.root, a.root, a.root, a.root, a.root, a.root, a.root, a.root, a.root), 401},
		"longer than the bounds": {append(file509(a.issue("sns.amazonaws.com", key, nil)), make([]byte, 1<<20)...), 503},
	} {
		p, s := listening(t)
		path := strings.TrimPrefix(certURL, "https://"+snsHost)
		s.files[path] = c.file
		sink := &mailtest.Sink{}
		for range 2 {
			require.Equal(t, c.want, mailtest.Status(p.Webhook(sink), call(mailtest.Recorded(t, "event_send.json"))), name)
		}
		if c.want != 503 {
			require.Equal(t, 1, s.count(path), "%s: asked once", name)
		}
	}
	// A host that isn't SNS, whatever its name: its own chain is a stranger's.
	s := newSNS(t)
	cfg := config("https://api.example")
	cfg.Exchange = s.exchange()
	cfg.Exchange.TLS.RootCAs = x509.NewCertPool()
	cfg.Exchange.TLS.RootCAs.AddCert(stranger.root)
	require.Equal(t, http.StatusServiceUnavailable, mailtest.Status(open(t, cfg).Webhook(&mailtest.Sink{}), call(mailtest.Recorded(t, "event_send.json"))))
	require.Zero(t, s.count(strings.TrimPrefix(certURL, "https://"+snsHost)))
}

// B160: while SNS's host is down, nothing is lost: SNS repeats.
func TestCertificateLater(t *testing.T) {
	p, s := listening(t)
	sink := &mailtest.Sink{}
	s.down = true
	require.Equal(t, http.StatusServiceUnavailable, mailtest.Status(p.Webhook(sink), call(mailtest.Recorded(t, "event_send.json"))))
	s.down = false
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(mailtest.Recorded(t, "event_send.json"))))
	require.Len(t, sink.All(), 1)
}

// A subscription is confirmed for our topics only, to SNS's host only, and as
// often as SNS asks.
func TestSubscription(t *testing.T) {
	p, s := listening(t)
	sink := &mailtest.Sink{}
	for range 2 {
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), post(subscription("token-1"))))
	}
	require.Equal(t, []string{"token-1", "token-1"}, s.tokens(t))
	for name, change := range map[string]func(map[string]string){
		"another's topic": func(v map[string]string) { v["TopicArn"] += "-other" },
		"another host": func(v map[string]string) {
			v["SubscribeURL"] = strings.Replace(v["SubscribeURL"], snsHost, "evil.example", 1)
		},
		"http":          func(v map[string]string) { v["SubscribeURL"] = strings.Replace(v["SubscribeURL"], "https", "http", 1) },
		"another token": func(v map[string]string) { v["SubscribeURL"] += "2" },
		"another action": func(v map[string]string) {
			v["SubscribeURL"] = strings.Replace(v["SubscribeURL"], "ConfirmSubscription", "DeleteTopic", 1)
		},
		"link for another topic": func(v map[string]string) {
			v["SubscribeURL"] = strings.Replace(v["SubscribeURL"], topic, topic+"-other", 1)
		},
	} {
		v := subscription("token-2")
		change(v)
		sign(trusted().signingKey, v)
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), post(v)), name)
	}
	require.Len(t, s.tokens(t), 2)
	s.down = true
	require.Equal(t, http.StatusServiceUnavailable, mailtest.Status(p.Webhook(sink), post(subscription("token-3"))), "SNS repeats")
	s.down = false
	require.Zero(t, p.Unread())
	ended := subscription("token-4")
	ended["Type"] = "UnsubscribeConfirmation"
	sign(trusted().signingKey, ended)
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), post(ended)))
	require.Equal(t, int64(1), p.Unread(), "somebody ended it: it must be seen")
	require.Len(t, s.tokens(t), 2, "and isn't undone")
	require.Empty(t, sink.All())
}

func TestKinds(t *testing.T) {
	p, _ := listening(t)
	for body, want := range map[string]struct {
		kind      dispatch.ReceiptKind
		permanent bool
		code      string
	}{
		`"eventType":"Send","send":{}`:                                                               {dispatch.Queued, false, ""},
		`"eventType":"Delivery","delivery":{"recipients":["a@example.com"]}`:                         {dispatch.Delivered, false, ""},
		`"eventType":"Bounce","bounce":{"bounceType":"Permanent","bounceSubType":"NoEmail"}`:         {dispatch.Bounced, true, "Permanent/NoEmail"},
		`"eventType":"Bounce","bounce":{"bounceType":"Transient","bounceSubType":"MailboxFull"}`:     {dispatch.Bounced, false, "Transient/MailboxFull"},
		`"eventType":"Bounce","bounce":{"bounceType":"Undetermined"}`:                                {dispatch.Bounced, false, "Undetermined"},
		`"notificationType":"Bounce","bounce":{"bounceType":"Permanent","bounceSubType":"General"}`:  {dispatch.Bounced, true, "Permanent/General"},
		`"eventType":"Complaint","complaint":{"complaintFeedbackType":"abuse"}`:                      {dispatch.Complained, true, "abuse"},
		`"eventType":"Complaint","complaint":{"complaintFeedbackType":"not-spam"}`:                   {dispatch.Noted, false, "not-spam"},
		`"eventType":"Reject","reject":{"reason":"Bad content"}`:                                     {dispatch.Failed, false, ""},
		`"eventType":"Rendering Failure","failure":{"errorMessage":"Attribute 'a' is not present"}`:  {dispatch.Failed, false, ""},
		`"eventType":"DeliveryDelay","deliveryDelay":{"delayType":"MailboxFull"}`:                    {dispatch.Deferred, false, "MailboxFull"},
		`"eventType":"Open","open":{}`:                                                               {dispatch.Opened, false, ""},
		`"eventType":"Click","click":{"link":"https://x"}`:                                           {dispatch.Clicked, false, ""},
		`"eventType":"Subscription","subscription":{"newTopicPreferences":{"unsubscribeAll":true}}`:  {dispatch.Unsubscribed, false, ""},
		`"eventType":"Subscription","subscription":{"newTopicPreferences":{"unsubscribeAll":false}}`: {dispatch.Noted, false, ""},
		`"eventType":"Brand New"`: {dispatch.Noted, false, ""},
	} {
		sink := &mailtest.Sink{}
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(`{"mail":{"messageId":"a"},`+body+`}`)))
		require.Len(t, sink.All(), 1, body)
		mailtest.CheckReceipts(t, sink.All())
		r := sink.All()[0]
		require.Equal(t, want.kind, r.Kind, body)
		require.Equal(t, want.permanent, r.Permanent, body)
		require.Equal(t, want.code, r.Code, body)
	}
	sink := &mailtest.Sink{}
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call("Successfully validated SNS topic for Amazon SES event publishing.")))
	require.Zero(t, p.Unread())
	for n, body := range []string{``, `[]`, `{"eventType":5}`, `{"eventType":"Send"}`, `{"mail":{"messageId":"a"}}`, `{"eventType":"Send","mail":{"messageId":"a"}}{}`} {
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(body)), body)
		require.Equal(t, int64(n+1), p.Unread(), body)
	}
	require.Empty(t, sink.All())
}

func FuzzWebhook(f *testing.F) {
	f.Add(`{"eventType":"Bounce","mail":{"messageId":5,"tags":{"dispatch_key":[]}},"bounce":{"bouncedRecipients":[null,{"emailAddress":[]}],"timestamp":1e400}}`)
	f.Add(`{"eventType":"Delivery","mail":{"messageId":"a"},"delivery":{"recipients":[1,"b"]}}`)
	f.Fuzz(func(t *testing.T, message string) {
		p, err := ses.New(config("https://api.example"))
		require.NoError(t, err)
		receipts, err := p.ReadForTest(message)
		require.NoError(t, err)
		mailtest.CheckReceipts(t, receipts)
	})
}

// Nothing of a stranger's call is believed, whatever it is.
func FuzzEnvelope(f *testing.F) {
	f.Add(`{"Type":"Notification","TopicArn":"` + topic + `","SignatureVersion":"2","Signature":"YQ==","SigningCertURL":"https://sns.eu-west-1.amazonaws.com/../a.pem"}`)
	f.Fuzz(func(t *testing.T, body string) {
		cfg := config("https://api.example")
		cfg.Exchange.Connect = time.Nanosecond // SNS is out of reach
		p, err := ses.New(cfg)
		require.NoError(t, err)
		sink := &mailtest.Sink{}
		if s := mailtest.Status(p.Webhook(sink), mailtest.Post(body)); s != http.StatusUnauthorized && s != http.StatusServiceUnavailable {
			t.Fatalf("answered %d", s)
		}
		require.Empty(t, sink.All())
	})
}
