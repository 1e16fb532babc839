import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** A method that tests one thing with real connections. */
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
@interface Scenario {
    /** After how many seconds it counts as hung. */
    int seconds() default 20;

    /** The brokers that cannot pass it: activemq5, activemq6 or quire. */
    String[] notOn() default {};

    /** Why they cannot. */
    String because() default "";
}
