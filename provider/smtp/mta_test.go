package smtp_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/smtp"
)

// postfix is a Postfix of its own: a folder, a port, and a mailbox that takes
// all mail to example.com and bücher.example.
type postfix struct {
	t    *testing.T
	dir  string
	addr string
}

const mainCF = `compatibility_level = 3.6
queue_directory = %[1]s/queue
data_directory = %[1]s/data
maillog_file = %[1]s/log
maillog_file_prefixes = %[1]s
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mta.example
mydestination =
alias_maps =
local_recipient_maps =
smtpd_peername_lookup = no
smtpd_relay_restrictions = reject_unauth_destination
smtpd_tls_security_level = may
smtpd_tls_cert_file = %[1]s/etc/cert.pem
smtpd_tls_key_file = %[1]s/etc/key.pem
message_size_limit = 200000
virtual_mailbox_domains = example.com, bücher.example, xn--bcher-kva.example
virtual_mailbox_base = %[1]s/mail
virtual_mailbox_maps = static:inbox/
virtual_uid_maps = static:65534
virtual_gid_maps = static:65534
`

const masterCF = `%s inet n - n - - smtpd
postlog unix-dgram n - n - 1 postlogd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 1 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
flush unix n - n - 0 flush
error unix - - n - - error
retry unix - - n - - error
virtual unix - n n - - virtual
proxymap unix - - n - - proxymap
anvil unix - - n - 1 anvil
tlsmgr unix - - n - 1 tlsmgr
`

// newPostfix starts one. Like PostgreSQL it is installed where it is missing;
// it wants to be started by root.
func newPostfix(t *testing.T, server *tls.Config) *postfix {
	t.Helper()
	dir, err := os.MkdirTemp("", "postfix") //nolint:usetesting // t.TempDir's is closed to Postfix's own users
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &postfix{t: t, dir: dir, addr: l.Addr().String()}
	require.NoError(t, l.Close())
	if _, err := os.Stat("/usr/sbin/postfix"); err != nil {
		p.root("apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "update")
		p.root("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300", "install", "--no-install-recommends", "postfix")
	}
	key, ok := server.Certificates[0].PrivateKey.(*ecdsa.PrivateKey)
	require.True(t, ok)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, sub := range []string{"etc", "queue", "data", "mail"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	for name, content := range map[string]string{
		"main.cf": fmt.Sprintf(mainCF, dir), "master.cf": fmt.Sprintf(masterCF, p.addr),
		"cert.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificates[0].Certificate[0]})),
		"key.pem":  string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "etc", name), []byte(content), 0o600))
	}
	p.root("chown", "-R", "root:root", dir)
	p.root("chown", "postfix", filepath.Join(dir, "data"))
	p.root("chown", "65534:65534", filepath.Join(dir, "mail"))
	p.root("chmod", "-R", "a+rX", filepath.Join(dir, "etc"))
	t.Cleanup(func() { p.root("rm", "-rf", dir) })
	p.root("/usr/sbin/postfix", "-c", filepath.Join(dir, "etc"), "start")
	t.Cleanup(func() { p.root("/usr/sbin/postfix", "-c", filepath.Join(dir, "etc"), "stop") })
	return p
}

// root runs a command as root and returns what it printed.
func (p *postfix) root(args ...string) string {
	p.t.Helper()
	if os.Geteuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(p.t, err, "a test with a real Postfix needs root, or sudo: %v: %s", args, out)
	return string(out)
}

// inbox waits for n mails and returns them by recipient, with the line ends
// of mail.
func (p *postfix) inbox(n int) map[string][]byte {
	p.t.Helper()
	var files []string
	require.Eventually(p.t, func() bool {
		files = strings.Fields(p.root("find", filepath.Join(p.dir, "mail"), "-path", "*/new/*", "-type", "f"))
		return len(files) >= n
	}, 30*time.Second, 50*time.Millisecond)
	require.Len(p.t, files, n)
	out := map[string][]byte{}
	for _, name := range files {
		data := bytes.ReplaceAll([]byte(p.root("cat", name)), []byte("\n"), []byte("\r\n"))
		_, to, _ := strings.Cut(string(data), "\r\nDelivered-To: ")
		to, _, _ = strings.Cut(to, "\r\n")
		out[to] = data
	}
	return out
}

// A real mail server, over STARTTLS: everything comes out as it went in, and
// what it refuses is understood.
func TestPostfix(t *testing.T) {
	server, client := certificate(t)
	mta := newPostfix(t, server)
	p := open(t, smtp.Config{Addr: mta.addr, TLS: client})
	e, m := awkward()
	e.Created = stored
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	require.Contains(t, a.Evidence.Reason, "queued as")

	international := mailtest.Envelope()
	letters := mailtest.Mail()
	letters.To = []dispatch.Address{{Name: "Jürgen", Email: "jürgen@bücher.example"}}
	international.Content = letters
	_, err = p.Send(t.Context(), international)
	require.NoError(t, err)

	elsewhere := mailtest.Envelope()
	mixed := mailtest.Mail()
	mixed.To = []dispatch.Address{{Email: "half@example.com"}, {Email: "ada@elsewhere.example"}}
	elsewhere.Content = mixed
	ev, v := dispatch.Judge(p.Send(t.Context(), elsewhere))
	require.Equal(t, dispatch.Sender, v.Scope, "554 5.7.1 relay access denied")
	require.Equal(t, "5.7.1", ev.Code)

	large := mailtest.Envelope()
	big := mailtest.Mail()
	big.Text = strings.Repeat("0123456789abcde\n", 1<<14)
	large.Content = big
	_, v = dispatch.Judge(p.Send(t.Context(), large))
	require.Contains(t, v.Reason, "the server takes 200000")
	_, err = p.Send(t.Context(), mailtest.Envelope())
	require.NoError(t, err, "after a refusal on the same connection")

	mails := mta.inbox(6)
	for _, to := range []string{"john@example.com", "j@example.com", "secret@example.com"} {
		require.Contains(t, mails, to)
		h, got := rfc822(t, mails[to])
		check(t, m, h, got)
	}
	require.NotContains(t, mails, "half@example.com", "nothing goes to a part of the recipients")
	found := 0
	for to, data := range mails {
		if strings.HasPrefix(to, "jürgen@") {
			found++
			h, _ := rfc822(t, data)
			list, err := h.AddressList("To")
			require.NoError(t, err)
			require.Equal(t, "jürgen@xn--bcher-kva.example", list[0].Address)
		}
	}
	require.Equal(t, 1, found)
}
