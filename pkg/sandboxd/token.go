// SPDX-License-Identifier: Apache-2.0

package sandboxd

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// TokenHeader is the header with the token of a sandbox's daemon.
const TokenHeader = "X-Access-Token"

// UserHeader is the header with the user as whom a request to the daemon acts. It is used because requests to ports have no Authorization
// header.
const UserHeader = "X-Atoll-User"

// Token returns the token of a sandbox's daemon, derived from the hub's key.
func Token(key []byte, sandbox string) string {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte("daemon\x00" + sandbox))
	return hex.EncodeToString(mac.Sum(nil))
}
