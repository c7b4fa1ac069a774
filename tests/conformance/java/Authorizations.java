import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Answers questions with Kafka's own StandardAuthorizer: commands on stdin, one a line, tabs between,
 * Kafka's numbers for types and operations; each question's answer is a line.
 */
public class Authorizations {
    record Asker(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "probe"; }
        public int correlationId() { return 0; }

        static Asker of(String principal, String host) throws Exception {
            return new Asker(SecurityUtils.parseKafkaPrincipal(principal), InetAddress.getByName(host));
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StandardAuthorizer authorizer = null;
        String line;
        while ((line = in.readLine()) != null) {
            String[] word = line.split("\t", -1);
            switch (word[0]) {
                case "new" -> {
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of(
                        StandardAuthorizer.SUPER_USERS_CONFIG, word[1],
                        StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, word[2]));
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.completeInitialLoad();
                }
                case "acl" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(number(word[1])), word[2], PatternType.fromCode(number(word[3])),
                    word[4], word[5], AclOperation.fromCode(number(word[6])),
                    AclPermissionType.fromCode(number(word[7]))));
                case "ask" -> {
                    ResourcePattern resource = new ResourcePattern(
                        ResourceType.fromCode(number(word[4])), word[5], PatternType.LITERAL);
                    Action action = new Action(AclOperation.fromCode(number(word[3])), resource, 1, true, true);
                    tell(authorizer.authorize(Asker.of(word[1], word[2]), List.of(action)).get(0));
                }
                case "any" -> tell(authorizer.authorizeByResourceType(
                    Asker.of(word[1], word[2]), AclOperation.fromCode(number(word[3])),
                    ResourceType.fromCode(number(word[4]))));
                case "supported" -> {
                    int bits = 0;
                    for (AclOperation each : AclEntry.supportedOperations(ResourceType.fromCode(number(word[1])))) {
                        bits |= 1 << each.code();
                    }
                    System.out.println(bits);
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static byte number(String word) {
        return Byte.parseByte(word);
    }

    private static void tell(AuthorizationResult result) {
        System.out.println(result == AuthorizationResult.ALLOWED ? 1 : 0);
    }
}
