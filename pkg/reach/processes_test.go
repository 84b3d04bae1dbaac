// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"navix.sh/atoll/api/envd"
	"navix.sh/atoll/e2e/must"
)

// The response of a command that has ended does not wait until its input is closed; because the daemon may hang.
func TestTheInputOfACommandThatHasEnded(t *testing.T) {
	a := newAPI(t)
	a.want(200, "GET", "a-east/processes", "") // the daemon has its token
	closing := make(chan struct{}, 1)
	a.mu.Lock()
	a.hangs = func(head []byte) bool {
		hangs := bytes.Contains(head, []byte(envd.ProcessCloseStdin))
		if hangs {
			closing <- struct{}{}
		}
		return hangs
	}
	a.mu.Unlock()
	for _, accept := range []string{"application/json", "text/event-stream"} {
		may := filepath.Join(t.TempDir(), "end")
		body := fmt.Sprintf(`{"command":["sh","-c","until test -e %s; do sleep 0.05; done"],"stdin":"text"}`, may)
		responded := make(chan string, 1)
		go func() { responded <- a.want(200, "POST", "a-east/processes", body, "Accept", accept) }()
		select {
		case <-closing:
		case text := <-responded:
			t.Fatalf("%s: the command ends with its input open: %s", accept, text)
		}
		must.Succeed(t, os.WriteFile(may, nil, 0o600))
		select {
		case <-responded:
		case <-time.After(openTimeout / 2):
			t.Errorf("%s: the response waits for the daemon: %s", accept, <-responded)
		}
	}
}
