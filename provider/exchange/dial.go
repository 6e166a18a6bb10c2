package exchange

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// dial opens a fresh connection, through a proxy where there is one, with TLS
// where the URL says so. No byte of the request leaves before it returns. On
// an error the evidence says what refused.
func (c *Client) dial(ctx context.Context, p *prepared) (*conn, dispatch.Evidence, error) {
	limited, cancel := context.WithTimeout(ctx, c.cfg.Connect)
	defer cancel()
	cn, e, err := c.connect(limited, p)
	e.Stage, e.Request = dispatch.NotSent, p.digest
	if err != nil && ctx.Err() != nil {
		e.Cause, err = dispatch.CauseDeadline, ctx.Err()
	}
	return cn, e, err
}

func (c *Client) connect(ctx context.Context, p *prepared) (*conn, dispatch.Evidence, error) {
	addr := p.addr()
	proxy, err := c.proxy(ctx, p)
	if err != nil {
		return nil, dispatch.Evidence{Cause: dispatch.CauseLocal}, err
	}
	if proxy != nil {
		addr = (&prepared{url: proxy}).addr()
	}
	socket, err := c.cfg.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, dispatch.Evidence{Cause: dispatch.CauseDial}, err
	}
	raw := &counted{Conn: socket}
	// A context that ends breaks off the proxy's answer and the handshakes.
	stop := context.AfterFunc(ctx, func() { abort(socket) })
	stream, e, err := c.secure(ctx, raw, p, proxy)
	if !stop() && err == nil {
		e.Cause, err = dispatch.CauseDial, ctx.Err()
	}
	if err != nil {
		abort(socket)
		return nil, e, err
	}
	return newConn(raw, stream, p.url.Scheme == "https", p.target()), e, nil
}

func (c *Client) proxy(ctx context.Context, p *prepared) (*url.URL, error) {
	if p.url.Scheme != "https" {
		return nil, nil
	}
	u, err := c.cfg.Proxy(p.request(ctx))
	if err != nil { // its text may quote a password
		return nil, errors.New("proxy's URL can't be read")
	}
	if u != nil && (u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "") {
		return nil, errors.New("proxy's URL is neither http nor https")
	}
	return u, nil
}

// secure makes a fresh socket into what HTTP is spoken on.
func (c *Client) secure(ctx context.Context, raw *counted, p *prepared, proxy *url.URL) (net.Conn, dispatch.Evidence, error) {
	if p.url.Scheme == "http" {
		return raw, dispatch.Evidence{}, nil
	}
	var stream net.Conn = raw
	if proxy != nil {
		if proxy.Scheme == "https" {
			var err error
			if stream, err = handshake(ctx, stream, c.cfg.TLS, proxy.Hostname()); err != nil {
				return nil, dispatch.Evidence{Cause: dispatch.CauseProxy}, err
			}
		}
		if e, err := tunnel(stream, p.addr(), proxy.User); err != nil {
			return nil, e, err
		}
	}
	host := p.url.Hostname()
	if c.cfg.TLS.ServerName != "" {
		host = c.cfg.TLS.ServerName
	}
	stream, err := handshake(ctx, stream, c.cfg.TLS, host)
	switch {
	case err == nil:
		return stream, dispatch.Evidence{}, nil
	case refusedCertificate(err):
		return nil, dispatch.Evidence{Cause: dispatch.CauseCertificate}, err
	}
	return nil, dispatch.Evidence{Cause: dispatch.CauseDial}, err
}

func handshake(ctx context.Context, under net.Conn, cfg *tls.Config, host string) (net.Conn, error) {
	cfg = cfg.Clone()
	cfg.ServerName = host
	t := tls.Client(under, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// refusedCertificate tells a certificate that was refused here, which only a
// person can mend, from a handshake that went wrong.
func refusedCertificate(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		roots     x509.SystemRootsError
	)
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &host) ||
		errors.As(err, &invalid) || errors.As(err, &roots)
}

// tunnel asks a proxy for a connection to addr. Whatever goes wrong here, the
// provider has not seen the request.
func tunnel(c net.Conn, addr string, user *url.Userinfo) (dispatch.Evidence, error) {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{}}
	if user != nil {
		password, _ := user.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := req.Write(c); err != nil {
		return dispatch.Evidence{Cause: dispatch.CauseProxy}, err
	}
	// The buffer may take more than the answer only from a server that speaks
	// first, which one of TLS doesn't: the handshake would fail.
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(c, maxHeader)), req) //nolint:bodyclose // the tunnel is the body
	if err != nil {
		return dispatch.Evidence{Cause: dispatch.CauseProxy}, err
	}
	e := evidence(resp, nil, time.Now())
	switch {
	case e.Status >= 200 && e.Status <= 299:
		return dispatch.Evidence{}, nil
	case e.Status == http.StatusProxyAuthRequired:
		e.Cause, err = dispatch.CauseProxyAuth, errors.New("proxy wants credentials")
	default:
		e.Cause, err = dispatch.CauseProxy, errors.New("proxy refused the tunnel")
	}
	return e, err
}
