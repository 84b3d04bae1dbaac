// SPDX-License-Identifier: Apache-2.0
// Names below E2B_DOMAIN lead to 127.0.0.1 and port NAMES_PORT, as a wildcard record of a DNS would have it: for versions of the SDK that know
// no E2B_SANDBOX_URL. Loaded before a program, by node --import.
import tls from 'node:tls'

const { E2B_DOMAIN: domain, NAMES_PORT: port } = process.env
const connect = tls.connect
tls.connect = (options, ...rest) => {
  if (!`${options?.host ?? ''}`.endsWith(`.${domain}`)) return connect(options, ...rest)
  return connect({ ...options, host: '127.0.0.1', port, servername: options.host, path: undefined }, ...rest)
}
