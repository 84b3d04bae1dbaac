// SPDX-License-Identifier: Apache-2.0

// Package oidctest runs dex, a real OpenID Connect server, for tests.
//
// Its users are alice (groups team-red, atoll-admins), bob (group team-blue) and carol (no groups), with the password "password"; its
// clients are atollctl and other, both public. It is built from its Go modules, once, into the user's cache directory.
package oidctest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/wait"
)

// Client is the id of the client whose tokens tests accept; OtherClient is that of another service.
const (
	Client      = "atollctl"
	OtherClient = "other"
)

// Dex is a process of dex.
type Dex struct {
	Issuer  string
	address string
	binary  string
	args    []string
	dir     string
	t       testing.TB
	process *exec.Cmd
}

// Start starts dex for one test. Its ID tokens are valid for a while.
func Start(t testing.TB, validFor time.Duration) *Dex {
	t.Helper()
	addresses, err := ports.Free(1)
	must.Succeed(t, err)
	address := addresses[0]
	d := &Dex{Issuer: "http://" + address, address: address, binary: build(t), dir: t.TempDir(), t: t}
	d.args = []string{"--listen", address, "--issuer", d.Issuer, "--valid-for", validFor.String()}
	t.Cleanup(d.Stop)
	d.Start()
	return d
}

// Start starts the process anew: with other keys, and without refresh tokens.
func (d *Dex) Start() {
	d.t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must.Succeed(d.t, err)
	defer log.Close()
	d.process = exec.Command(d.binary, d.args...)
	d.process.Stdout, d.process.Stderr, d.process.SysProcAttr = log, log, attributes()
	must.Succeed(d.t, d.process.Start())
	wait.For(d.t, time.Minute, "dex to listen", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.Issuer+"/keys", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	})
}

// Stop ends the process.
func (d *Dex) Stop() {
	if d.process == nil {
		return
	}
	_ = d.process.Process.Kill()
	_ = d.process.Wait()
	d.process = nil
}

// Token returns an ID token of a user for a client.
func (d *Dex) Token(user, client string) string {
	d.t.Helper()
	response, err := http.PostForm(d.Issuer+"/token", url.Values{
		"grant_type": {"password"}, "username": {user + "@example.com"}, "password": {"password"}, "client_id": {client},
		"scope": {"openid email groups profile"},
	})
	must.Succeed(d.t, err)
	defer response.Body.Close()
	var token struct {
		ID string `json:"id_token"`
	}
	body := must.Read(d.t, response.Body)
	if err := json.Unmarshal(body, &token); err != nil || token.ID == "" {
		d.t.Fatalf("no token for %s: %s, %s", user, response.Status, body)
	}
	return token.ID
}

var form = regexp.MustCompile(`<form[^>]* action="([^"]*)"`)

// Visit does what a user does with a browser at a URL of dex: follows it to the form of the password, fills that in, and follows where
// it leads. It returns the last page. No script of the pages runs.
func (d *Dex) Visit(ctx context.Context, where, user, password string) (page string, err error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", err
	}
	browser := &http.Client{Jar: jar, Timeout: 30 * time.Second}
	at, page, err := open(ctx, browser, where, nil)
	if err != nil {
		return "", err
	}
	if code := at.Query().Get("user_code"); code != "" { // a device's: it is confirmed first
		if at, page, err = open(ctx, browser, d.Issuer+"/device/auth/verify_code", url.Values{"user_code": {code}}); err != nil {
			return "", err
		}
	}
	action := form.FindStringSubmatch(page)
	if action == nil {
		return page, fmt.Errorf("no form at %s: %s", at, page)
	}
	to, err := at.Parse(strings.ReplaceAll(action[1], "&amp;", "&"))
	if err != nil {
		return "", err
	}
	_, page, err = open(ctx, browser, to.String(), url.Values{"login": {user + "@example.com"}, "password": {password}})
	return page, err
}

func open(ctx context.Context, browser *http.Client, where string, post url.Values) (*url.URL, string, error) {
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if post != nil {
		method, body = http.MethodPost, strings.NewReader(post.Encode())
	}
	request, err := http.NewRequestWithContext(ctx, method, where, body)
	if err != nil {
		return nil, "", err
	}
	if post != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := browser.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.Request.URL, string(page), err
}

// build compiles dex, unless it was before.
func build(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "navix.sh/atoll").Output()
	must.Succeed(t, err)
	source := filepath.Join(strings.TrimSpace(string(out)), "tools", "dex")
	sum := sha256.New()
	for _, file := range []string{"main.go", "go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(source, file))
		must.Succeed(t, err)
		sum.Write(data)
	}
	cache, err := os.UserCacheDir()
	must.Succeed(t, err)
	dir := filepath.Join(cache, "atoll", "dex")
	must.Succeed(t, os.MkdirAll(dir, 0o755))
	binary := filepath.Join(dir, "dex-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	made := filepath.Join(t.TempDir(), "dex")
	cmd := exec.Command("go", "build", "-trimpath", "-o", made, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building dex: %v\n%s", err, out)
	}
	// Several processes may do this at a time: the last one wins, whole.
	data, err := os.ReadFile(made)
	must.Succeed(t, err)
	temporary, err := os.CreateTemp(dir, "new-*")
	must.Succeed(t, err)
	_, err = temporary.Write(data)
	must.Succeed(t, err)
	must.Succeed(t, temporary.Chmod(0o755))
	must.Succeed(t, temporary.Close())
	must.Succeed(t, os.Rename(temporary.Name(), binary))
	return binary
}
