// Echoes the body of a request after `?delay=Nms`, and exits at SIGTERM at once.
process.on('SIGTERM', () => process.exit())
const server = require('http').createServer((request, response) => {
  const body = []
  const delay = /delay=(\d+)ms/.exec(request.url)
  request.on('data', (part) => body.push(part))
  request.on('end', () => setTimeout(() => response.end(Buffer.concat(body)), delay ? +delay[1] : 0))
})
server.keepAliveTimeout = 0
server.listen(8080)
