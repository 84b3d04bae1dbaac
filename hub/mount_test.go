// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/api"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

// mounted is a Secret as a kubelet mounts it: names that lead through one link to a folder, which is replaced as a whole.
type mounted struct {
	dir     string
	version int
}

func (m *mounted) write(t *testing.T, files map[string][]byte) {
	t.Helper()
	m.version++
	version := fmt.Sprint("..version-", m.version)
	must.Succeed(t, os.Mkdir(filepath.Join(m.dir, version), 0o755))
	for name, content := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(m.dir, version, name), content, 0o600))
		if err := os.Symlink(filepath.Join("..data", name), m.path(name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	must.Succeed(t, os.Symlink(version, m.path("..new")))
	must.Succeed(t, os.Rename(m.path("..new"), m.path("..data")))
	if m.version > 1 {
		must.Succeed(t, os.RemoveAll(m.path(fmt.Sprint("..version-", m.version-1))))
	}
}

func (m *mounted) path(name string) string { return filepath.Join(m.dir, name) }

// secret is the content of a TLS Secret.
func secret(t *testing.T, files link.Files) map[string][]byte {
	t.Helper()
	content := map[string][]byte{}
	for name, path := range map[string]string{"tls.crt": files.Cert, "tls.key": files.Key, "ca.crt": files.CA} {
		raw, err := os.ReadFile(path)
		must.Succeed(t, err)
		content[name] = raw
	}
	return content
}

func mintKey(t *testing.T, name string) (token string, file []byte) {
	t.Helper()
	token, file, err := api.NewToken(api.Key{Name: name, Scopes: []api.Scope{api.ScopeRead}})
	must.Succeed(t, err)
	return token, file
}

// TestSecretsAreTakenUpWithoutARestart is why the chart restarts no Pod when its Secrets change.
func TestSecretsAreTakenUpWithoutARestart(t *testing.T) {
	authority, err := pki.New(filepath.Join(t.TempDir(), "pki"))
	must.Succeed(t, err)
	renew := func() map[string][]byte {
		files, err := authority.Hub("127.0.0.1")
		must.Succeed(t, err)
		return secret(t, files)
	}
	certificate, keys := &mounted{dir: t.TempDir()}, &mounted{dir: t.TempDir()}
	certificate.write(t, renew())
	firstToken, firstKeys := mintKey(t, "first")
	keys.write(t, map[string][]byte{"keys.yaml": firstKeys})

	h := start(t, &options{
		listen: ":8080", dataDir: t.TempDir(), authOptions: authOptions{apiKeysFile: keys.path("keys.yaml")}, retention: time.Hour,
		tls: link.Files{Cert: certificate.path("tls.crt"), Key: certificate.path("tls.key"), CA: certificate.path("ca.crt")},
	})
	cas := x509.NewCertPool()
	cas.AddCert(authority.Certificate())
	call := func(token string) (code int, serial *big.Int) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cas}, DisableKeepAlives: true}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+h.api+"/v1/clusters", nil)
		must.Succeed(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := (&http.Client{Transport: transport}).Do(request)
		must.Succeed(t, err)
		defer response.Body.Close()
		return response.StatusCode, response.TLS.PeerCertificates[0].SerialNumber
	}
	code, first := call(firstToken)
	if code != http.StatusOK {
		t.Fatalf("with the first key: %d", code)
	}

	certificate.write(t, renew())
	want, err := authority.Issued(link.Hub())
	must.Succeed(t, err)
	if _, now := call(firstToken); now.Cmp(want.SerialNumber) != 0 || now.Cmp(first) == 0 {
		t.Errorf("the API serves certificate %v after %v was renewed to %v", now, first, want.SerialNumber)
	}
	conn, err := tls.Dial("tcp", h.link, &tls.Config{RootCAs: cas, NextProtos: []string{"h2"}})
	must.Succeed(t, err)
	if now := conn.ConnectionState().PeerCertificates[0].SerialNumber; now.Cmp(want.SerialNumber) != 0 {
		t.Errorf("the link serves certificate %v after %v was renewed to %v", now, first, want.SerialNumber)
	}
	must.Succeed(t, conn.Close())

	secondToken, secondKeys := mintKey(t, "second")
	keys.write(t, map[string][]byte{"keys.yaml": secondKeys})
	wait.For(t, 20*time.Second, "the second key to be taken up", func(context.Context) error {
		code, _ := call(secondToken)
		return wait.If(code == http.StatusOK, code)
	})
	if code, _ := call(firstToken); code != http.StatusUnauthorized {
		t.Errorf("with the key that was taken out: %d", code)
	}
}
