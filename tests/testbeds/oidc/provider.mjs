// An OpenID Connect provider on loopback for the tests, configured by one JSON argument: place (of node_modules), port, ttl_s, kid.
// It tells its port on standard output. Whoever signs in is believed by name; members of a group are written below.
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const given = JSON.parse(process.argv[2]);
const { default: Provider } = await import(pathToFileURL(`${given.place}/node_modules/oidc-provider/lib/index.js`));
const GROUPS = { ada: ['research', 'ops'], bob: ['research'], eve: [] };
const RESOURCE = 'https://federator.test';

const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const key = { ...privateKey.export({ format: 'jwk' }), kid: given.kid, use: 'sig', alg: 'RS256' };

const claimsOf = (name) => ({ preferred_username: name, groups: GROUPS[name] ?? [] });

const server = createServer();
server.listen(given.port, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    jwks: { keys: [key] },
    cookies: { keys: ['test'] },
    clients: [
      {
        client_id: 'federator-cli',
        application_type: 'native',
        token_endpoint_auth_method: 'none',
        redirect_uris: ['http://127.0.0.1/callback', 'http://127.0.0.1/sign-in'],
        grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
        response_types: ['code'],
      },
      {
        client_id: 'ci',
        client_secret: 'of-the-test',
        redirect_uris: [],
        grant_types: ['client_credentials'],
        response_types: [],
      },
    ],
    claims: { openid: ['sub', 'preferred_username', 'groups'] },
    conformIdTokenClaims: false,
    findAccount: (_, name) => ({ accountId: name, claims: () => ({ sub: name, ...claimsOf(name) }) }),
    extraTokenClaims: (_, token) => (token.accountId ? claimsOf(token.accountId) : {}),
    features: {
      clientCredentials: { enabled: true },
      deviceFlow: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({
          scope: 'openid profile email offline_access',
          audience: RESOURCE,
          accessTokenFormat: 'jwt',
          accessTokenTTL: given.ttl_s,
        }),
      },
    },
    rotateRefreshToken: true,
    ttl: { AccessToken: given.ttl_s, IdToken: given.ttl_s, ClientCredentials: given.ttl_s },
  });
  server.on('request', provider.callback());
  console.log(server.address().port);
});
