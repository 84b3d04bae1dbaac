// SPDX-License-Identifier: Apache-2.0

//go:build browser

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/oidctest"
)

// atollctl login opens a real browser, in which a user signs in at a real issuer; the browser comes back with a code, for which atollctl
// gets tokens by its verifier. They are renewed without the browser.
func TestLoginByABrowser(t *testing.T) {
	dir := atHome(t)
	hub, address := startTokenHub(t)
	dex := oidctest.Start(t, renewedAtEachCall)
	browser, err := filepath.Abs("../tools/login-browser/run")
	must.Succeed(t, err)
	log := filepath.Join(t.TempDir(), "browser.log")
	for name, value := range map[string]string{
		"BROWSER": browser, "SSH_CONNECTION": "", "LOGIN_USER": "alice@example.com", "LOGIN_PASSWORD": "password", "LOGIN_LOG": log,
	} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var errs shown
	err = command(ctx, io.Discard, &errs, "login", "--context", "prod", "--server", address, "--issuer", dex.Issuer, "--client-id",
		oidctest.Client)
	said, _ := os.ReadFile(log)
	if err != nil || !strings.Contains(errs.text(), "Signed in as alice@example.com for context prod.") {
		t.Fatalf("%v\n%s\n%s", err, errs.text(), said)
	}
	onlyMine(t, dir)
	first := calledWith(t, hub)
	if second := calledWith(t, hub); second == first {
		t.Error("the token was not renewed")
	}
}
