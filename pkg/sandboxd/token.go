// SPDX-License-Identifier: Apache-2.0

package sandboxd

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// TokenHeader has the token of a sandbox's daemon.
const TokenHeader = "X-Access-Token"

// UserHeader names the user that a request to the daemon acts as; because ports get no Authorization.
const UserHeader = "X-Atoll-User"

// Token is the token of a sandbox's daemon, by the hub's key.
func Token(key []byte, sandbox string) string {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte("daemon\x00" + sandbox))
	return hex.EncodeToString(mac.Sum(nil))
}
