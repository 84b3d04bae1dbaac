// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
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

// The error of a timeout that the daemon cannot take is the API's: it names the field, its value and what is valid.
func TestTimeoutsOfACommandHaveABound(t *testing.T) {
	a := newAPI(t)
	command := func(timeout string) string { return fmt.Sprintf(`{"command":["true"],"timeout":%q}`, timeout) }
	a.want(200, "POST", "a-east/processes", command(maxTimeout.String()))
	longest := time.Duration(math.MaxInt64)
	for _, timeout := range []string{(maxTimeout + time.Millisecond).String(), longest.String(), "9999999h", "0s", "-1s"} {
		text := a.want(400, "POST", "a-east/processes", command(timeout))
		for _, want := range []string{`"timeout"`, timeout, "at most 2777h46m39.999s"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the error lacks %s: %s", timeout, want, text)
			}
		}
	}
}
