// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"navix.sh/atoll/e2e/must"
)

// A call may take longer than its body may, with a body or without one.
func TestACallOutlastsTheTimeOfItsBody(t *testing.T) {
	for name, request := range map[string]string{
		"without a body": "DELETE /sandboxes/01-east HTTP/1.1\r\nHost: e2b\r\n\r\n",
		"with a body": "POST /sandboxes/01-east/timeout HTTP/1.1\r\nHost: e2b\r\nContent-Type: application/json\r\n" +
			"Content-Length: 13\r\n\r\n{\"timeout\":9}",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inside, outside := NewInside(), NewInside()
				slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					select {
					case <-r.Context().Done():
						t.Error("the gateway has left its call")
					case <-time.After(2 * bodyTimeout):
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"id":"01-east","phase":"RUNNING"}`)
				})
				g, err := New(Options{Dial: inside.Dial, Key: bytes.Repeat([]byte{7}, KeySize), Now: time.Now, Log: logr.Discard()})
				must.Succeed(t, err)
				behind := &http.Server{Handler: slow, ReadHeaderTimeout: time.Hour}
				before := &http.Server{Handler: g, ReadHeaderTimeout: time.Hour}
				var running sync.WaitGroup
				running.Go(func() { _ = behind.Serve(inside) })
				running.Go(func() { _ = before.Serve(outside) })
				conn, err := outside.Dial(t.Context(), "192.0.2.1")
				must.Succeed(t, err)
				_, err = io.WriteString(conn, request)
				must.Succeed(t, err)
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				must.Succeed(t, err)
				body := string(must.Read(t, response.Body))
				if response.StatusCode != http.StatusNoContent {
					t.Errorf("%s: %s", response.Status, body)
				}
				must.Succeed(t, response.Body.Close())
				must.Succeed(t, conn.Close())
				g.Close()
				must.Succeed(t, before.Close())
				must.Succeed(t, behind.Close())
				running.Wait()
			})
		})
	}
}
