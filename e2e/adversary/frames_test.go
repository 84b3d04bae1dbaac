// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// linkRows attack the public API with raw HTTP/2, and the link without a certificate.
func linkRows() []row {
	return []row{
		{name: "h2-settings", role: anyone, told: []string{"SETTINGS ACK"}, attack: h2flood(func(c *h2, _ uint32) error {
			return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1},
				http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		})},
		// One call in 256 is not reset: it shows how far the hub has come.
		{name: "h2-rapid-reset", role: anyone, told: []string{"HEADERS Unauthenticated"}, never: []string{"HEADERS OK"},
			attack: h2flood(func(c *h2, i uint32) error {
				if i%256 == 0 {
					return c.writeCall(2*i+1, calling(createMethod))
				}
				if err := c.begin(2*i+1, calling(createMethod)); err != nil {
					return err
				}
				return c.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
			})},
		{name: "h2-pings", role: anyone, told: []string{"GOAWAY ENHANCE_YOUR_CALM"}, attack: h2flood(func(c *h2, i uint32) error {
			return c.WritePing(false, [8]byte{byte(i), byte(i >> 8)})
		})},
		{name: "h2-continuations", role: anyone, told: []string{"closed|GOAWAY.*"}, never: []string{"HEADERS.*"},
			attack: h2flood(func(c *h2, i uint32) error {
				if i == 0 {
					return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: calling(createMethod)})
				}
				return c.WriteContinuation(1, false, block("x-"+fmt.Sprint(i), strings.Repeat("y", 8<<10)))
			})},
		{name: "h2-header-lists", role: anyone, told: []string{"HEADERS Unauthenticated"}, never: []string{"HEADERS OK"},
			attack: h2flood(headerList)},
		{name: "h2-header-bomb", role: anyone, told: []string{"RST_STREAM FRAME_SIZE_ERROR"}, never: []string{"HEADERS.*"},
			attack: h2flood(headerBomb)},
		{name: "h2-open-streams", role: anyone, told: []string{"HEADERS Unauthenticated"}, never: []string{"HEADERS OK"},
			attack: h2flood(func(c *h2, i uint32) error {
				return c.begin(2*i+1, calling("/grpc.health.v1.Health/Watch"))
			})},
		{name: "h2-zero-windows", role: anyone, told: []string{"closed"}, attack: h2floodOn(64, func(c *h2, i uint32) error {
			if i == 900 {
				return errors.Join(io.EOF, c.out.Flush()) // as many as may be under way
			}
			return c.writeCall(2*i+1, calling("/grpc.health.v1.Health/Check"))
		}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})},
		{name: "h2-empty-data", role: anyone, told: []string{"HEADERS Unauthenticated"}, never: []string{"HEADERS OK"},
			attack: h2flood(func(c *h2, i uint32) error {
				if i == 0 {
					return c.begin(1, calling("/grpc.health.v1.Health/Check"))
				}
				if i%512 == 511 { // another call, which shows that the hub has come this far
					return c.writeCall(2*i+1, calling(createMethod))
				}
				return c.WriteData(1, false, nil)
			})},
		// A call in between shows that the hub has passed over them.
		{name: "h2-odd-frames", role: anyone, told: []string{"HEADERS Unauthenticated"}, never: []string{"HEADERS OK"},
			attack: h2flood(func(c *h2, i uint32) error {
				if i%256 == 255 {
					return c.writeCall(2*i+1, calling(createMethod))
				}
				switch i % 4 {
				case 0:
					return c.WritePriority(2*i+1, http2.PriorityParam{StreamDep: 2*i + 1, Weight: 255})
				case 1:
					return c.WriteWindowUpdate(0, 1)
				case 2:
					return c.WriteRawFrame(http2.FrameType(200), 0, i, make([]byte, 100))
				default:
					return c.WriteRawFrame(http2.FramePushPromise, 0, 2*i+1, make([]byte, 4))
				}
			})},
		{name: "link-silence", role: anyone, told: []string{"closed"}, attack: silent(func(a *attacker) string { return a.Link }, "\x16")},
		{name: "link-churn", role: anyone, told: []string{"connected"}, attack: churn(func(a *attacker) string { return a.Link })},
		{name: "tls-handshakes", role: anyone, told: []string{".*certificate.*"}, never: []string{"admitted"},
			attack: handshakes(func(*attacker) (*tls.Config, error) {
				return &tls.Config{}, nil
			})},
		{name: "tls-own-certificate", role: anyone, told: []string{"remote error: tls: unknown certificate authority"},
			never: []string{"admitted"},
			attack: handshakes(func(*attacker) (*tls.Config, error) {
				cert, err := selfSigned("spiffe://atoll.navix.sh/cluster/east")
				return &tls.Config{GetClientCertificate: always(cert)}, err
			})},
		{name: "tls-old-versions", role: anyone, told: []string{".*protocol version.*"}, never: []string{"admitted"},
			attack: handshakes(func(*attacker) (*tls.Config, error) {
				return &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS12}, nil
			})},
		{name: "tls-large-certificate", role: anyone, told: []string{"remote error: tls: internal error"}, never: []string{"admitted"},
			attack: handshakes(func(*attacker) (*tls.Config, error) {
				cert, err := selfSigned("spiffe://atoll.navix.sh/cluster/east")
				for range 1000 {
					cert.Certificate = append(cert.Certificate, cert.Certificate[0])
				}
				return &tls.Config{GetClientCertificate: always(cert)}, err
			})},
	}
}

// headerList is a call with as many fields as fit into a frame.
func headerList(c *h2, i uint32) error {
	var more []string
	for n := range 200 {
		more = append(more, fmt.Sprintf("x-%d-%d", i, n), strings.Repeat("y", 40))
	}
	return c.begin(2*i+1, calling(createMethod, more...))
}

// headerBomb is a call whose fields refer to a large one in HPACK's table: a byte on the wire, 4 KiB each when decoded.
func headerBomb(c *h2, i uint32) error {
	fields := block(":method", "POST", ":scheme", "http", ":path", createMethod, ":authority", "localhost", "x", strings.Repeat("y", 3900))
	fields = append(fields, strings.Repeat("\xbe", 12<<10)...) // index 62: the newest of the table
	return c.begin(2*i+1, fields)
}

// h2flood writes frames on a few connections, and connects again when the hub hangs up.
func h2flood(write func(c *h2, i uint32) error, settings ...http2.Setting) func(context.Context, *attacker) error {
	return h2floodOn(4, write, settings...)
}

func h2floodOn(conns int, write func(c *h2, i uint32) error, settings ...http2.Setting) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		a.frames(ctx, conns, a.API, nil, write, settings...)
		return nil
	}
}

// selfSigned is a certificate that no CA of the federation signed.
func selfSigned(uri string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	name, err := url.Parse(uri)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "evil"}, URIs: []*url.URL{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// always presents a certificate that the hub has not asked for: it names its own CA.
func always(cert tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
}

// handshakes begins TLS on the link again and again.
func handshakes(config func(*attacker) (*tls.Config, error)) func(context.Context, *attacker) error {
	return handshakesAt(func(a *attacker) string { return a.Link }, config)
}

// handshakesAt is handshakes at another port.
func handshakesAt(where func(*attacker) string, config func(*attacker) (*tls.Config, error)) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		c, err := config(a)
		if err != nil {
			return err
		}
		c.InsecureSkipVerify, c.NextProtos = true, []string{"h2"}
		swarm(ctx, 16, func(int) {
			a.attempts.Add(1)
			conn, ok := a.connect(ctx, where(a))
			if !ok {
				return
			}
			defer conn.Close()
			client := tls.Client(conn, c)
			// With TLS 1.3 the server refuses a certificate after the client's handshake.
			if err = client.HandshakeContext(ctx); err == nil {
				_, err = client.Read(make([]byte, 1))
			}
			switch {
			case err == nil:
				a.tell("admitted")
			case strings.Contains(err.Error(), "tls:"): // the hub's alert
				a.tell(err.Error())
			case ctx.Err() == nil:
				a.tell(hungUp(err))
			}
		})
		return nil
	}
}
